package main

import (
	"fmt"

	"github.com/jetsidecar/jetsidecar/internal/config"
)

// configMain is sidecar config.
func configMain(c command, args []string, s streams) int {
	fs, file := configFlags(c.name)
	schema := fs.Bool("schema", false, "print the JSON Schema")
	if !parseFlags(c, fs, args, s) {
		return exitUsage
	}
	if *schema {
		return written(config.WriteSchema(s.out), s)
	}
	cfg, ok := load(*file, s)
	if !ok {
		return exitUsage
	}
	warnings(s.err, cfg.Warnings)
	return written(cfg.WriteYAML(s.out), s)
}

func written(err error, s streams) int {
	if err != nil {
		fmt.Fprintf(s.err, "sidecar: write the output: %v\n", err)
		return exitFailed
	}
	return exitOK
}
