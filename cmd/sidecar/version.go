package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is set at release by -ldflags "-X main.version=v1.2.3".
var version string

// versionMain is sidecar version.
func versionMain(c command, args []string, s streams) int {
	fs, _ := configFlags(c.name)
	if !parseFlags(c, fs, args, s) {
		return exitUsage
	}
	v, commit := buildVersion()
	fmt.Fprintf(s.out, "sidecar %s\ncommit %s\n%s\n", v, commit, runtime.Version())
	return exitOK
}

// buildVersion is the version and the commit that the binary was built from; "+dirty" marks a changed tree.
func buildVersion() (v, commit string) {
	v, commit = version, "unknown"
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v, commit
	}
	if v == "" {
		v = info.Main.Version
	}
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			commit += "+dirty"
		}
	}
	return v, commit
}
