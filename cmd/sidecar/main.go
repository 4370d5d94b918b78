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
	return dispatch(os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr, environ: os.Environ()})
}

// streams is what a command reads and writes.
type streams struct {
	in       io.Reader
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
	subs  []command // instead of run
}

func commands() []command {
	return []command{
		{name: "run", short: "deliver messages until SIGTERM or SIGINT", args: "[-c FILE]", long: runHelp, run: runMain},
		{name: "check", short: "validate the configuration; --connect also checks NATS and the app", args: "[-c FILE] [--connect]", long: checkHelp, run: checkMain},
		{name: "config", short: "print the effective configuration, or with --schema its JSON Schema", args: "[-c FILE] [--schema]", long: configHelp, run: configMain},
		{name: "policy", short: "print the retry schedule and the status table of each consumer", args: "[-c FILE]", long: policyHelp, run: policyMain},
		{name: "dlq", short: "list, show, count, replay and remove dead letters", args: "list|show|stats|replay|rm", long: dlqHelp, subs: dlqCommands()},
		{name: "healthcheck", short: "ask the running sidecar whether it is alive", args: "[-c FILE]", long: healthHelp, run: healthMain},
		{name: "version", short: "print version, commit and Go version", args: "", long: "", run: versionMain},
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
	switch {
	case i < 0 && slices.ContainsFunc(args, isHelp):
		return help(nil, s)
	case i < 0:
		return unknownCommand("", name, all, s)
	}
	c, rest := all[i], args[1:]
	if len(c.subs) > 0 {
		return dispatchSub(c, rest, s)
	}
	if slices.ContainsFunc(rest, isHelp) {
		commandUsage(s.out, c.name, c)
		return exitOK
	}
	return c.run(c, rest, s)
}

// dispatchSub runs the command below c that args name.
func dispatchSub(c command, args []string, s streams) int {
	i := -1
	if len(args) > 0 {
		i = slices.IndexFunc(c.subs, func(sub command) bool { return sub.name == args[0] })
	}
	switch {
	case i >= 0 && slices.ContainsFunc(args[1:], isHelp):
		commandUsage(s.out, c.name+" "+c.subs[i].name, c.subs[i])
		return exitOK
	case i >= 0:
		return c.subs[i].run(c.subs[i], args[1:], s)
	case len(args) == 0:
		commandUsage(s.err, c.name, c)
		return exitUsage
	case slices.ContainsFunc(args, isHelp):
		commandUsage(s.out, c.name, c)
		return exitOK
	case args[0] == "help":
		return help(append([]string{c.name}, args[1:]...), s)
	default:
		return unknownCommand(c.name+" ", args[0], c.subs, s)
	}
}

func isHelp(arg string) bool {
	return arg == "-h" || arg == "-help" || arg == "--help"
}

// unknownCommand complains of a name; parent is the command before it, with a blank.
func unknownCommand(parent, name string, all []command, s streams) int {
	if strings.HasPrefix(name, "-") {
		fmt.Fprintf(s.err, "sidecar: a command comes first, as in: sidecar %s%s %s\n", parent, all[0].name, name)
	} else {
		var names []string
		for _, c := range all {
			names = append(names, c.name)
		}
		hint := ""
		if best := config.Near(name, names); best != "" {
			hint = fmt.Sprintf("; did you mean %q?", best)
		}
		fmt.Fprintf(s.err, "sidecar: unknown command %q%s\n", parent+name, hint)
	}
	fmt.Fprintf(s.err, "Run 'sidecar %s--help' for the commands.\n", parent)
	return exitUsage
}
