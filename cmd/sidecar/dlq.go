package main

import "fmt"

// dlqMain is sidecar dlq.
func dlqMain(c command, _ []string, s streams) int {
	fmt.Fprintf(s.err, "sidecar %s: not supported yet\n", c.name)
	return exitUsage
}
