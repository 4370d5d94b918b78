package admin

import "context"

// Routes are the routes of the API, as "METHOD path".
func (s *Server) Routes() []string {
	var all []string
	for _, r := range s.routes() {
		all = append(all, r.method+" "+r.path)
	}
	return all
}

// What is bounded.
const (
	MostListeners = mostListeners
	SendTimeout   = sendTimeout
	MostReads     = mostReads
	MostChanges   = mostChanges
	MaxBody       = maxBody
)

// Watch is what Serve does beside serving.
func (s *Server) Watch(ctx context.Context) { s.watch(ctx) }
