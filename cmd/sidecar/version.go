package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version and commit are set at release by -ldflags "-X main.version=v1.2.3 -X main.commit=abc".
var version, commit string

// versionMain is sidecar version.
func versionMain(c command, args []string, s streams) int {
	fs, _ := configFlags(c.name)
	if !parseFlags(c, fs, args, s) {
		return exitUsage
	}
	v, rev := buildVersion()
	fmt.Fprintf(s.out, "sidecar %s\ncommit %s\n%s\n", v, rev, runtime.Version())
	return exitOK
}

// buildVersion is the version and the commit that the binary was built from; "+dirty" marks a changed tree.
func buildVersion() (v, rev string) {
	v, rev = version, commit
	if rev == "" {
		rev = "unknown"
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v, rev
	}
	if v == "" {
		v = info.Main.Version
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			rev = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			rev += "+dirty"
		}
	}
	return v, rev
}
