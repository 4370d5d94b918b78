package dlq

import "time"

// Filter selects entries: those that match all that is set. The zero Filter selects all.
type Filter struct {
	Stream   string    `json:"stream,omitempty"`   // the DLQ stream; empty: all of the configuration
	Consumer string    `json:"consumer,omitempty"` // durable
	Subject  string    `json:"subject,omitempty"`  // the original subject, with wildcards * and >
	Reason   string    `json:"reason,omitempty"`
	Status   *int      `json:"status,omitempty"` // 0: no answer
	Since    time.Time `json:"since,omitzero"`   // stored in the DLQ then or later
	Until    time.Time `json:"until,omitzero"`   // stored in the DLQ before
	First    uint64    `json:"first,omitempty"`  // sequences in the DLQ stream, both included; 0: no bound
	Last     uint64    `json:"last,omitempty"`
	After    Cursor    `json:"after,omitzero"`  // only what comes after it in a List
	Limit    int       `json:"limit,omitempty"` // at most so many, the oldest; 0: no limit
}

// Cursor is a place in a List. Its text is STREAM:SEQ.
type Cursor struct {
	Stream string
	Seq    uint64
}
