// Command sidecar delivers the messages of NATS JetStream consumers to a local HTTP app.
package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/jetsidecar/jetsidecar/internal/config"
)

// Exit codes.
const (
	exitOK     = 0 // a clean stop
	exitFailed = 1 // a failure at run time
	exitUsage  = 2 // a usage or configuration error
)

func main() {
	os.Exit(Main())
}

// Main runs the command line of the process and returns its exit code.
func Main() int {
	return dispatch(os.Args[1:], streams{out: os.Stdout, err: os.Stderr, environ: os.Environ()})
}

// streams is what a command reads and writes.
type streams struct {
	out, err io.Writer
	environ  []string // in the form of os.Environ
}

// getenv looks a variable up in the environment.
func (s streams) getenv(name string) string {
	value := ""
	for _, v := range s.environ {
		if k, after, ok := strings.Cut(v, "="); ok && k == name {
			value = after
		}
	}
	return value
}

// command is one of the sidecar's commands.
type command struct {
	name  string
	short string
	args  string // for its usage line
	long  string
	run   func(c command, args []string, s streams) int
}

func commands() []command {
	return []command{
		{"run", "deliver messages until SIGTERM or SIGINT", "[-c FILE]", runHelp, runMain},
		{"check", "validate the configuration; --connect also checks NATS and the app", "[-c FILE] [--connect]", checkHelp, checkMain},
		{"config", "print the effective configuration, or with --schema its JSON Schema", "[-c FILE] [--schema]", configHelp, configMain},
		{"policy", "print the retry schedule and the status table of each consumer", "[-c FILE]", policyHelp, policyMain},
		{"dlq", "work with dead letters (not supported yet)", "list|show|replay|rm|stats", dlqHelp, dlqMain},
		{"healthcheck", "ask the running sidecar whether it is alive", "[-c FILE]", healthHelp, healthMain},
		{"version", "print version, commit and Go version", "", "", versionMain},
	}
}

// dispatch runs the command that args name.
func dispatch(args []string, s streams) int {
	all := commands()
	if len(args) == 0 {
		usage(s.err, all)
		return exitUsage
	}
	name := args[0]
	if isHelp(name) || name == "help" {
		return help(args[1:], s)
	}
	if name == "-version" || name == "--version" {
		name = "version"
	}
	i := slices.IndexFunc(all, func(c command) bool { return c.name == name })
	if i < 0 {
		return unknownCommand(name, all, s)
	}
	if slices.ContainsFunc(args[1:], isHelp) {
		commandUsage(s.out, all[i])
		return exitOK
	}
	return all[i].run(all[i], args[1:], s)
}

func isHelp(arg string) bool {
	return arg == "-h" || arg == "-help" || arg == "--help"
}

func unknownCommand(name string, all []command, s streams) int {
	if strings.HasPrefix(name, "-") {
		fmt.Fprintf(s.err, "sidecar: a command comes first, as in: sidecar run %s\n", name)
	} else {
		var names []string
		for _, c := range all {
			names = append(names, c.name)
		}
		hint := ""
		if best := config.Near(name, names); best != "" {
			hint = fmt.Sprintf("; did you mean %q?", best)
		}
		fmt.Fprintf(s.err, "sidecar: unknown command %q%s\n", name, hint)
	}
	fmt.Fprintln(s.err, "Run 'sidecar --help' for the commands.")
	return exitUsage
}
