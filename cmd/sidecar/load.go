package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/jetsidecar/jetsidecar/internal/config"
)

// parseFlags parses a command's flags; ok is false if the command must end with a usage error.
func parseFlags(c command, fs *flag.FlagSet, args []string, s streams) (ok bool) {
	fs.SetOutput(io.Discard)
	err := fs.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp): // -h among the values of other flags
		err = errors.New("help is a flag of its own")
	case err == nil && fs.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	fs.Visit(func(f *flag.Flag) {
		if err == nil && f.Name == "c" && f.Value.String() == "" {
			err = errors.New("flag -c names no file: it is empty")
		}
	})
	if err == nil {
		return true
	}
	fmt.Fprintf(s.err, "sidecar %s: %v\nUsage: sidecar %s %s\n", c.name, err, c.name, c.args)
	return false
}

// options say where the configuration is; file is that of the flag.
func options(file string, s streams) config.Options {
	if file == "" {
		file = s.getenv("SIDECAR_CONFIG")
	}
	return config.Options{File: file, Environ: s.environ}
}

// load reads the configuration that flag and environment name. With ok false errors and warnings are written.
func load(file string, s streams) (cfg *config.Loaded, ok bool) {
	cfg, err := config.Load(options(file, s))
	if err == nil {
		return cfg, true
	}
	defer warnings(s.err, cfg.Warnings)
	var faults config.Faults
	if errors.As(err, &faults) && len(faults) > 1 {
		fmt.Fprintf(s.err, "sidecar: the configuration has %d faults:\n", len(faults))
	}
	if faults == nil {
		fmt.Fprintf(s.err, "sidecar: %v\n", err)
		return nil, false
	}
	for _, f := range faults {
		fmt.Fprintln(s.err, f)
	}
	return nil, false
}

// configFlags are the flags of every command that reads the configuration.
func configFlags(name string) (fs *flag.FlagSet, file *string) {
	fs = flag.NewFlagSet(name, flag.ContinueOnError)
	return fs, fs.String("c", "", "configuration file")
}

// runMain is sidecar run.
func runMain(c command, args []string, s streams) int {
	fs, file := configFlags(c.name)
	if !parseFlags(c, fs, args, s) {
		return exitUsage
	}
	cfg, ok := load(*file, s)
	if !ok {
		return exitUsage
	}
	return runCommand(context.Background(), cfg, s.err)
}
