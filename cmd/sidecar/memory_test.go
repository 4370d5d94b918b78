package main

import (
	"math"
	"testing"
	"testing/fstest"

	"github.com/jetsidecar/jetsidecar/internal/config"
)

func TestCgroupLimit(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"not Linux":      {nil, math.MaxInt64},
		"none":           {map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max\n"}, math.MaxInt64},
		"v2":             {map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "134217728\n"}, 128 << 20},
		"v2 container":   {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "134217728\n"}, 128 << 20},
		"v2 of a parent": {map[string]string{"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "200\n", "sys/fs/cgroup/a/memory.max": "100\n"}, 100},
		"v1": {map[string]string{
			"proc/self/cgroup": "5:cpu:/x\n4:memory:/docker/1\n0::/\n", "sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes": "1000\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n", "sys/fs/cgroup/memory/x/memory.limit_in_bytes": "1\n",
		}, 1000},
		"v1 container": {map[string]string{"proc/self/cgroup": "4:memory:/docker/1\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "1000\n"}, 1000},
		"nonsense":     {map[string]string{"proc/self/cgroup": "\nx\n0:..:/../..\n0::/..\n", "sys/fs/cgroup/memory.max": "-1\n"}, math.MaxInt64},
	} {
		root := fstest.MapFS{}
		for file, text := range test.files {
			root[file] = &fstest.MapFile{Data: []byte(text)}
		}
		if got := cgroupLimit(root); got != test.want {
			t.Errorf("%s: %d, want %d", name, got, test.want)
		}
	}
}

// What lives never reaches the limit by itself: else the collector would not come to rest.
func TestMemoryLimit(t *testing.T) {
	c := config.Consumer{}
	c.MaxBytes, c.Dedupe.Store, c.Dedupe.MaxEntries = 16<<20, "memory", 1<<20
	cfg := &config.Loaded{Config: config.Config{Consumers: []config.Consumer{c, c}}}
	if got, want := memoryLimit(cfg, math.MaxInt64), int64(baseMemory+2*2*(16<<20)+2*2*(64<<20)); got != want {
		t.Errorf("%d, want %d", got, want)
	}
	if got := memoryLimit(cfg, 100<<20); got > 90<<20 || got < 89<<20 {
		t.Errorf("%d in a cgroup of 100 MiB", got)
	}
	cfg.Consumers[0].MaxBytes, cfg.Consumers[1].Dedupe.MaxEntries = math.MaxInt64, math.MaxInt64
	if got := memoryLimit(cfg, math.MaxInt64); got < 1<<40 {
		t.Errorf("%d of enormous bounds", got)
	}
}
