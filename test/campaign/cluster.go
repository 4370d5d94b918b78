//go:build unix

package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/jetsidecar/jetsidecar/internal/localnats"
)

// nowhere is what nodes tell others of themselves: else they would find each other beside the links that can be cut.
const nowhere = "127.0.0.1:1"

// node is one server of the cluster, in a process of its own.
type node struct {
	name           string
	dir            string
	client, routes string // where it listens
	process        *process
}

// cluster is some servers with one JetStream.
type cluster struct {
	h     *house
	nodes []*node
	links [nodes][nodes]*link // the way of the routes that one node makes to another

	mu     sync.Mutex // of the processes and what they are configured by
	denied []string   // where the sidecars may not publish
}

// listen opens a port below those that outgoing connections are given.
func listen() (net.Listener, error) {
	for try := 0; ; try++ {
		port, err := localnats.FreePort()
		if err != nil {
			return nil, err
		}
		ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil || try > 20 {
			return ln, err
		}
	}
}

func freeAddress() (string, error) {
	ln, err := listen()
	if err != nil {
		return "", err
	}
	return ln.Addr().String(), ln.Close()
}

// newCluster starts the nodes with their files under dir. It does not wait for them.
func newCluster(h *house, dir string) (*cluster, error) {
	c := &cluster{h: h}
	for i := range nodes {
		n := &node{name: fmt.Sprint("n", i), dir: filepath.Join(dir, fmt.Sprint("n", i))}
		var err1, err2 error
		n.client, err1 = freeAddress()
		n.routes, err2 = freeAddress()
		if err1 != nil || err2 != nil {
			return nil, fmt.Errorf("find a free port: %w", err1)
		}
		c.nodes = append(c.nodes, n)
	}
	for i := range nodes {
		for j := range nodes {
			if i == j {
				continue
			}
			l, err := newLink(c.nodes[j].routes)
			if err != nil {
				return c, err
			}
			c.links[i][j] = l
		}
	}
	for i := range nodes {
		if err := c.start(i); err != nil {
			return c, err
		}
	}
	return c, nil
}

// configure writes a node's configuration.
func (c *cluster) configure(i int) error {
	n := c.nodes[i]
	var routes []string
	for j, l := range c.links[i] {
		if j != i {
			routes = append(routes, strconv.Quote("nats://"+l.address()))
		}
	}
	deny := ""
	if len(c.denied) > 0 {
		deny = fmt.Sprintf(", permissions: {publish: {deny: [%s]}}", strings.Join(c.denied, ", "))
	}
	text := fmt.Sprintf(`
server_name: %s
listen: %q
ping_interval: "3s"
log_file: %q
jetstream: {store_dir: %q}
cluster: {name: campaign, listen: %q, advertise: %q, no_advertise: true, routes: [%s]}
authorization: {users: [{user: campaign, password: campaign}, {user: sidecar, password: sidecar%s}]}
`, n.name, n.client, n.dir+".log", n.dir, n.routes, nowhere, strings.Join(routes, ", "), deny)
	return os.WriteFile(n.dir+".conf", []byte(text), 0o600)
}

func (c *cluster) start(i int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.nodes[i]
	if err := c.configure(i); err != nil {
		return err
	}
	var err error
	n.process, err = c.h.start(n.dir+".out", os.Environ(), c.h.self, "-node", n.dir+".conf")
	return err
}

func (c *cluster) process(i int) *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nodes[i].process
}

// stop ends a node: gracefully, or at once. A node that does not end in time is killed.
func (c *cluster) stop(i int, graceful bool) {
	p := c.process(i)
	if graceful {
		p.signal(syscall.SIGTERM)
		select {
		case <-p.ended:
			return
		case <-time.After(10 * time.Second):
		}
	}
	p.kill()
}

// forbidden is where each kind of fault forbids the sidecars to publish.
var forbidden = map[kind]string{
	dlqDenied:  `"dlq.>", "sidecar.retry.>"`,
	ackDenied:  `"$JS.ACK.>"`,
	pullDenied: `"$JS.API.CONSUMER.MSG.NEXT.>"`,
	kvDenied:   `"$KV.>"`,
}

// deny takes a permission from the sidecars, or gives it back. A node that is down reads it when it starts.
func (c *cluster) deny(k kind, denied bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.denied = slices.DeleteFunc(c.denied, func(s string) bool { return s == forbidden[k] })
	if denied {
		c.denied = append(c.denied, forbidden[k])
	}
	for i, n := range c.nodes {
		if err := c.configure(i); err != nil {
			return err
		}
		if n.process.running() {
			n.process.signal(syscall.SIGHUP)
		}
	}
	return nil
}

// between are the links between two nodes, or between one and all others.
func (c *cluster) between(i, j int) []*link {
	var ls []*link
	for k := range nodes {
		if k != i && (j < 0 || k == j) {
			ls = append(ls, c.links[i][k], c.links[k][i])
		}
	}
	return ls
}

// urls are what clients connect to directly.
func (c *cluster) urls() string {
	var all []string
	for _, n := range c.nodes {
		all = append(all, "nats://"+n.client)
	}
	return strings.Join(all, ",")
}

func (c *cluster) close() {
	for _, n := range c.nodes {
		if n.process != nil {
			n.process.kill()
		}
	}
	for i := range nodes {
		for j := range nodes {
			if c.links[i][j] != nil {
				c.links[i][j].close()
			}
		}
	}
}

// runNode runs a server by its configuration until a signal ends it: SIGHUP reads it again, SIGTERM stops gracefully.
func runNode(conf string) {
	opts, err := server.ProcessConfigFile(conf)
	if err == nil {
		var s *server.Server
		if s, err = server.NewServer(opts); err == nil {
			s.ConfigureLogger()
			s.Start()
			s.WaitForShutdown()
			return
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(exitFailed)
}
