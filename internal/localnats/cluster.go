package localnats

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// clusterLimit bounds the wait for a cluster to have a leader and be in step.
const clusterLimit = 2 * time.Minute

// Cluster is some NATS servers with one JetStream.
type Cluster struct {
	servers []*Server
}

// StartCluster runs n servers with their files under dir, and returns when they have a meta leader and all of them are
// in step with it. Three are needed for streams of three replicas.
func StartCluster(n int, dir string) (*Cluster, error) {
	return onFreePorts(func() (*Cluster, error) { return startCluster(n, dir) })
}

func startCluster(n int, dir string) (*Cluster, error) {
	if dir == "" {
		return nil, errors.New("start a nats cluster: no store directory given")
	}
	ports, err := freePorts(2 * n)
	if err != nil {
		return nil, err
	}
	clients, peers := ports[:n], ports[n:]
	c := &Cluster{}
	for i := range n {
		c.servers = append(c.servers, &Server{o: Options{
			Port: clients[i], Name: "n" + strconv.Itoa(i), StoreDir: filepath.Join(dir, "n"+strconv.Itoa(i)),
			cluster: server.ClusterOpts{Name: "local", Host: host, Port: peers[i], NoAdvertise: true},
			routes:  routes(peers, i),
		}})
	}
	for _, s := range c.servers { // each needs the others to be ready
		if err := s.launch(); err != nil {
			c.Shutdown()
			return nil, err
		}
	}
	for _, s := range c.servers {
		if err := s.await(); err != nil {
			c.Shutdown()
			return nil, err
		}
	}
	if err := c.Await(); err != nil {
		c.Shutdown()
		return nil, err
	}
	return c, nil
}

func freePorts(n int) ([]int, error) {
	ports := make([]int, 0, n)
	taken := map[int]bool{}
	for len(ports) < n {
		p, err := FreePort()
		if err != nil {
			return nil, err
		}
		if !taken[p] {
			taken[p] = true
			ports = append(ports, p)
		}
	}
	return ports, nil
}

func routes(ports []int, self int) string {
	var all []string
	for i, p := range ports {
		if i != self {
			all = append(all, "nats://"+net.JoinHostPort(host, strconv.Itoa(p)))
		}
	}
	return strings.Join(all, ",")
}

// URLs are what clients connect to, one for each server, running or not.
func (c *Cluster) URLs() []string {
	all := make([]string, len(c.servers))
	for i, s := range c.servers {
		all[i] = s.URL()
	}
	return all
}

// URL is all of them, separated by commas, as nats.Connect takes them.
func (c *Cluster) URL() string { return strings.Join(c.URLs(), ",") }

// Server is the server i, for its native methods; stop and start it by the cluster's.
func (c *Cluster) Server(i int) *Server { return c.servers[i] }

// Stop stops server i and waits until it is down. It waits for no new leader: see Await.
func (c *Cluster) Stop(i int) { c.servers[i].Shutdown() }

// Retire lets server i go down in lame-duck mode.
func (c *Cluster) Retire(i int) { c.servers[i].Retire() }

// Start runs server i again on the same ports and files, and returns when it takes clients. It waits for no leader:
// see Await.
func (c *Cluster) Start(i int) error {
	if c.servers[i].running != nil {
		return nil
	}
	return c.servers[i].upAgain()
}

// Shutdown stops all servers and waits until they are down.
func (c *Cluster) Shutdown() {
	for _, s := range c.servers {
		s.Shutdown()
	}
}

// Leader is the index of the meta leader, -1 if there is none.
func (c *Cluster) Leader() int {
	for i, s := range c.servers {
		if s.running != nil && s.running.JetStreamIsLeader() {
			return i
		}
	}
	return -1
}

// Await waits until there is one meta leader and every running server is in step with it.
func (c *Cluster) Await() error {
	deadline := time.Now().Add(clusterLimit)
	for {
		why := c.unsettled()
		if why == "" {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("await the nats cluster: %s after %v", why, clusterLimit)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// unsettled says what is still to wait for, or nothing.
func (c *Cluster) unsettled() string {
	leader := c.Leader()
	if leader < 0 {
		return "no meta leader"
	}
	running := 0
	for i, s := range c.servers {
		if s.running == nil {
			continue
		}
		running++
		if i != leader && s.running.JetStreamIsLeader() {
			return "two meta leaders"
		}
		if !s.running.JetStreamIsCurrent() {
			return s.o.Name + " is not current"
		}
	}
	// The leader's view: a follower that just came up may call itself current before it heard of what it missed.
	info, err := c.servers[leader].running.Jsz(nil)
	if err != nil || info.Meta == nil {
		return "the meta leader does not tell its peers"
	}
	current := 1
	for _, p := range info.Meta.Replicas {
		if p.Current && !p.Offline {
			current++
		}
	}
	if current < running {
		return fmt.Sprintf("%d of %d servers are current", current, running)
	}
	// The leader places nothing on a server of which it has not heard what room it has, also again after routes were made anew.
	if placed := len(c.servers[leader].running.JetStreamClusterPeers()); placed < running {
		return fmt.Sprintf("the meta leader knows the room of %d of %d servers", placed, running)
	}
	return ""
}
