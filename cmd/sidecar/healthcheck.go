package main

import (
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/jetsidecar/jetsidecar/internal/config"
)

// healthTimeout bounds a health check.
const healthTimeout = 5 * time.Second

// healthMain is sidecar healthcheck.
func healthMain(c command, args []string, s streams) int {
	fs, file := configFlags(c.name)
	if !parseFlags(c, fs, args, s) {
		return exitUsage
	}
	listen, err := config.AdminListen(options(*file, s))
	if err != nil {
		fmt.Fprintf(s.err, "sidecar healthcheck: %v\n", err)
		return exitFailed
	}
	url := "http://" + reachable(listen) + "/livez"
	client := &http.Client{Timeout: healthTimeout, Transport: &http.Transport{Proxy: nil}}
	resp, err := client.Get(url)
	if err != nil {
		fmt.Fprintf(s.err, "sidecar healthcheck: %v\n", err)
		return exitFailed
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		fmt.Fprintf(s.err, "sidecar healthcheck: %s answered %s\n", url, resp.Status)
		return exitFailed
	}
	return exitOK
}

// reachable turns an address to listen on into one to connect to: every interface becomes loopback.
func reachable(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	switch ip := net.ParseIP(host); {
	case host == "" || ip != nil && ip.IsUnspecified() && ip.To4() != nil:
		host = "127.0.0.1"
	case ip != nil && ip.IsUnspecified():
		host = "::1"
	}
	return net.JoinHostPort(host, port)
}
