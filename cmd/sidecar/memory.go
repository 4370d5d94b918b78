package main

import (
	"bytes"
	"io/fs"
	"math"
	"os"
	"path"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/jetsidecar/jetsidecar/internal/config"
)

const (
	// gcPercent lets the small heap of a sidecar grow to five times what lives in it before it is collected.
	gcPercent = 400
	// baseMemory is what a sidecar may take besides leased messages and dedupe before it is collected more often.
	baseMemory = 24 << 20
	// entryMemory is what an entry of the dedupe memory takes at most, in bytes.
	entryMemory = 64
	// cgroupShare is how much of what the cgroup may have the heap may take, in per cent: the rest is for what the collector does
	// not count.
	cgroupShare = 90
	// enormous is more than any machine has.
	enormous = 1 << 50
)

// tuneMemory sets the garbage collector for a small heap that turns over fast, unless the environment does.
func tuneMemory(cfg *config.Loaded) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryLimit(cfg, cgroupLimit(os.DirFS("/"))))
	}
}

// memoryLimit is the soft limit of the heap in bytes: twice what the configuration bounds, so that it is never what lives that
// reaches it, and less than what the cgroup may have.
func memoryLimit(cfg *config.Loaded, cgroup int64) int64 {
	limit := int64(baseMemory)
	for _, c := range cfg.Consumers {
		limit += 2 * min(c.MaxBytes, enormous)
		if c.Dedupe.Store != "off" {
			limit += 2 * entryMemory * min(int64(c.Dedupe.MaxEntries), enormous/entryMemory)
		}
	}
	return min(limit, cgroup/100*cgroupShare)
}

// cgroupLimit is how many bytes of memory the cgroup of this process, and those it is in, may have; math.MaxInt64 if there is no
// limit, or none to be seen. Root is the file system.
//
// The files are those of cgroup v2 and v1 as of Linux's cgroups(7). In a container the path often is that of the host, and
// the container's own limit is at the root of what is mounted.
func cgroupLimit(root fs.FS) int64 {
	limit := int64(math.MaxInt64)
	self, err := fs.ReadFile(root, "proc/self/cgroup")
	if err != nil {
		return limit // not Linux
	}
	for line := range strings.Lines(string(self)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) < 3 {
			continue
		}
		mount, file := "sys/fs/cgroup", "memory.max"
		if parts[1] != "" {
			mount, file = "sys/fs/cgroup/memory", "memory.limit_in_bytes"
		}
		if parts[1] != "" && parts[1] != "memory" {
			continue
		}
		for dir := path.Clean("/" + parts[2]); ; dir = path.Dir(dir) {
			limit = min(limit, readLimit(root, path.Join(mount, dir, file)))
			if dir == "/" {
				break
			}
		}
	}
	return limit
}

// readLimit is the number in a file; math.MaxInt64 if there is none.
func readLimit(root fs.FS, name string) int64 {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return math.MaxInt64
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	if err != nil || n <= 0 {
		return math.MaxInt64 // "max"
	}
	return n
}
