package dlq

// RemoveOptions are how to remove.
type RemoveOptions struct {
	DryRun bool
	// Confirm, if set, is asked once the selection is fixed, with its number of entries; an error ends it with that error.
	Confirm func(selected int) error
	// OnProgress, if set, is told after each entry, and without a Last when others are waited for, by one goroutine at a time; it must
	// not block.
	OnProgress func(Progress)
}

// Destination is where a replay sends entries.
type Destination string

// Of replays, wherever they are asked for.
const (
	DefaultRate       = 50  // entries a second
	MaxRate           = 1e6 // the same
	DefaultMaxReplays = 100
	MaxConcurrency    = 64 // entries in work at a time
)

// The destinations.
const (
	ToApp    Destination = "app"    // this entry to the app alone
	ToStream Destination = "stream" // to its original subject, for every consumer of it
)

// ReplayOptions are how to replay.
type ReplayOptions struct {
	To          Destination // empty: ToApp
	DryRun      bool
	Rate        float64 // entries a second; 0: no limit
	Concurrency int     // entries in work at a time; 0: one
	MaxReplays  int     // entries that were replayed so often are left; 0: none are
	// Confirm, if set, is asked once the selection is fixed, with its number of entries; an error ends it with that error.
	Confirm func(selected int) error
	// OnProgress, if set, is told after each entry, and without a Last when others are waited for, by one goroutine at a time; it must
	// not block.
	OnProgress func(Progress)
}

// Progress is how far a removal or a replay is.
type Progress struct {
	Selected int      `json:"selected"` // entries that were selected at the start
	Done     int      `json:"done"`     // gone as asked: removed, accepted by the app, or confirmed by the stream
	Failed   int      `json:"failed"`   // replayed, failed again, and stored anew with the new cause
	Kept     int      `json:"kept"`     // left as they were, or answered and still there
	Gone     int      `json:"gone"`     // of Done those that somebody else removed meanwhile, or replayed with success
	Last     *Outcome `json:"last,omitempty"`
	// Waiting is set while nothing is left to do but what others have in work.
	Waiting *Waiting `json:"waiting,omitempty"`
}

// Waiting are entries that others have in work.
type Waiting struct {
	Entries int    `json:"entries"`
	Owner   string `json:"owner"` // for people
}

// Outcome is what became of one entry.
type Outcome struct {
	Entry     *Entry `json:"entry"`
	Result    Result `json:"result"`
	NewStream string `json:"new_dlq_stream,omitempty"` // of the new entry, where it failed again: the one that its consumer has now
	NewSeq    uint64 `json:"new_seq,omitempty"`        // there
	Reason    string `json:"reason,omitempty"`         // of the new entry
	Status    int    `json:"status,omitempty"`         // the app's answer
	Why       string `json:"why,omitempty"`            // why it failed or was kept; of an app that gave no reason, the start of its answer

	answer bool // Why is the start of the app's answer
}

// Result is one word on what became of an entry.
type Result string

// The results.
const (
	Removed   Result = "removed"   // as asked, or what was left of one that an earlier run had done with
	Acked     Result = "acked"     // the app accepted it
	Dropped   Result = "dropped"   // the app does not want it
	Published Result = "published" // its stream confirmed it
	Failed    Result = "failed"    // the app failed it again, here or in another replay: there is a new entry instead
	Kept      Result = "kept"      // nothing was changed, or it was answered and could not be removed
	Gone      Result = "gone"      // somebody else removed it meanwhile, or replayed it
	Selected  Result = "selected"  // a dry run
)

// Report is what came of a removal or a replay.
type Report struct {
	Progress
	Unsettled   int       `json:"unsettled,omitempty"` // of Gone those that may have failed again in another replay: that took too long to look
	Interrupted bool      `json:"interrupted"`         // it was stopped before it was through
	Failures    []Failure `json:"failures"`            // what is still in the DLQ and why, the most frequent first
	// Partial says that more may have been done: a sidecar that did it was left, or went away, before it said the last of it.
	Partial bool `json:"partial,omitempty"`
	// Missed are entries that were confirmed, and that the second selection, with which a sidecar did it, did not find: they are not in Selected.
	Missed int `json:"missed,omitempty"`
	// UpTo is set by a dry run: as Filter.UpTo it selects no more than the dry run did.
	UpTo []Cursor `json:"up_to,omitzero"`
	// Exceptions are set by a dry run, where there are some.
	Exceptions []Exception `json:"exceptions,omitempty"`
}

// Exception are selected entries of one DLQ stream with which something else would be done than was asked for.
type Exception struct {
	Result Result   `json:"result"` // Kept; or Gone or Failed: removed without a call, as superseded by an entry that is selected too or not, or as one of several of a message (Gone)
	Stream string   `json:"dlq_stream"`
	Why    string   `json:"why"`
	Seqs   []uint64 `json:"seqs"`
}

// Handled reports whether nothing of the selection is left to do.
func (r *Report) Handled() bool {
	return !r.Interrupted && !r.Partial && r.Failed == 0 && r.Kept == 0 && r.Missed == 0
}

// Failure are entries that are still in the DLQ for the same cause.
type Failure struct {
	Result   Result `json:"result"` // Failed or Kept
	Stream   string `json:"dlq_stream"`
	Consumer string `json:"consumer"`
	Reason   string `json:"reason,omitempty"`
	Status   int    `json:"status,omitempty"`
	Why      string `json:"why,omitempty"`
	Count    int    `json:"count"`
	Example  uint64 `json:"example"` // sequence in dlq_stream of one of them
}
