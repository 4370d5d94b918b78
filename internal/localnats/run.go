package localnats

// TB is what is needed of a *testing.T or *testing.B. This package must not import testing: the demo links it.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(func())
	TempDir() string
}

// Run starts a server for a test and stops it at the test's end. Without a StoreDir it gets a temporary one.
func Run(tb TB, o Options) *Server {
	tb.Helper()
	if o.StoreDir == "" {
		o.StoreDir = tb.TempDir()
	}
	s, err := Start(o)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(s.Shutdown)
	return s
}

// RunCluster starts a cluster of n for a test and stops it at the test's end.
func RunCluster(tb TB, n int) *Cluster {
	tb.Helper()
	c, err := StartCluster(n, tb.TempDir())
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(c.Shutdown)
	return c
}
