package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

const (
	configNote = `
  -c FILE    configuration file (YAML; .json and .toml by extension).
             Without it SIDECAR_CONFIG names the file; with neither, the
             environment alone configures the sidecar.
`
	runHelp = `Delivers the messages of the configured consumers to the app until SIGTERM or
SIGINT. Exits 0 after a clean stop, 1 after a failure, 2 if the configuration
is wrong.
` + configNote
	checkHelp = `Validates the configuration and lists everything that is wrong with it.
` + configNote + `  --connect  also check NATS, streams, consumers, permissions and the app; exits
             1 if one of them fails.
`
	configHelp = `Prints the effective configuration as YAML. A comment says where each value
came from: default, file and line, or environment variable. Secrets are
redacted.
` + configNote + `  --schema   print the JSON Schema of the configuration, for editors.
`
	policyHelp = `Prints for each consumer how long a message waits before each attempt, and
what each HTTP status means; with the limits that Retry-After and age set.
` + configNote
	healthHelp = `Asks /livez of the configured admin.listen, for a container's health check.
Needs admin.listen only: the rest of the configuration may be missing or wrong.
Exits 0 if the sidecar there is alive, 1 if it is not or admin.listen cannot be
read, 2 if the command line is wrong.
` + configNote
)

// help answers sidecar --help and sidecar help [COMMAND].
func help(args []string, s streams) int {
	all, name := commands(), ""
	var found *command
	for _, arg := range args {
		if i := slices.IndexFunc(all, func(c command) bool { return c.name == arg }); i >= 0 {
			name, found, all = strings.TrimPrefix(name+" "+arg, " "), &all[i], all[i].subs
		}
	}
	if found == nil {
		usage(s.out, all)
	} else {
		commandUsage(s.out, name, *found)
	}
	return exitOK
}

func usage(w io.Writer, all []command) {
	fmt.Fprint(w, "sidecar delivers the messages of NATS JetStream consumers to a local HTTP app.\n\nUsage: sidecar COMMAND [flags]\n\nCommands:\n")
	for _, c := range all {
		fmt.Fprintf(w, "  %-12s %s\n", c.name, c.short)
	}
	fmt.Fprint(w, "\nRun 'sidecar COMMAND --help' for more about a command.\nExit codes: 0 clean stop, 1 failure at run time, 2 usage or configuration error.\n")
}

// commandUsage writes the help of a command; name is how it is called.
func commandUsage(w io.Writer, name string, c command) {
	line := "Usage: sidecar " + name
	if c.args != "" {
		line += " " + c.args
	}
	fmt.Fprintf(w, "%s\n\n%s%s.\n", line, capital(c.short[:1]), c.short[1:])
	if c.long != "" {
		fmt.Fprintf(w, "\n%s", c.long)
	}
}

func capital(letter string) string {
	return string(letter[0] - 'a' + 'A')
}
