package jetstream

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

const (
	// ClaimLease is how long claims outlive the last word of their owner: one that was killed holds its entries that long.
	ClaimLease = 15 * time.Second
	// claimTries bounds how often one change of the claims is tried against those of others.
	claimTries = 50
	// claimPause is about how much longer each of those waits than the one before: all of them take some seconds.
	claimPause = 5 * time.Millisecond
)

// Claims keep two runs over one DLQ stream from working on the same entry at the same time. They are one key of the bucket
// sidecar-state for each DLQ stream, changed by compare and set, which lists the runs: what each works on, what it is done
// with and is about to remove, and until when it holds that. Times are the server's: clocks need not agree.
//
// It is safe for concurrent use by one run, which does not take an entry twice.
type Claims struct {
	conn    *Conn
	kv      natsjs.KeyValue
	client  *client // that it was looked up with
	key     string
	created time.Time // of the DLQ stream: claims on an earlier one of that name do not count
	self    claimRun

	mu       sync.Mutex
	closed   bool
	table    claimTable // as last known, self not in it
	revision uint64     // of what is known; 0: there is no key
	known    bool
	company  uint64    // see Company
	server   time.Time // the server's time at local
	local    time.Time
	dead     []string // the runs that Dead told of
}

type claimTable struct {
	Created time.Time  `json:"created"`
	Runs    []claimRun `json:"runs"`
}

type claimRun struct {
	ID    string     `json:"id"`
	Owner string     `json:"owner"` // for people
	Until time.Time  `json:"until"`
	Work  []uint64   `json:"work,omitempty"` // sequences of entries, and numbers above all of them that runs agree on
	Done  [][]uint64 `json:"done,omitempty"` // the sequences of all parts of entries that are to be removed
}

// OpenClaims begins a run over a DLQ stream. The bucket is made if it is missing and manage allows it; source is then the stream
// whose replicas it gets. It returns what runs that died were done with and did not remove: the sequences of the parts.
// After removing them the caller calls Adopted.
func (c *Conn) OpenClaims(ctx context.Context, dlqStream, source string, manage Manage, id, owner string) (*Claims, [][]uint64, error) {
	ctx, cancel := c.bounded(ctx, 5*apiTimeout) // servers tell what room they have every ten seconds (events.go, statsHBInterval)
	defer cancel()
	client := c.client.Load()
	kv, err := c.claimBucket(ctx, source, manage)
	if err != nil {
		return nil, nil, err
	}
	state, err := c.StreamState(ctx, dlqStream)
	if err != nil {
		return nil, nil, err
	}
	k := &Claims{conn: c, kv: kv, client: client, key: claimsKey(dlqStream), created: state.Created, self: claimRun{ID: id, Owner: owner}}
	// The server's time is known only after something was written.
	if err := k.change(ctx, func(*claimTable) error { return nil }); err != nil {
		return nil, nil, err
	}
	k.mu.Lock()
	k.known = false
	k.mu.Unlock()
	if err := k.Renew(ctx); err != nil {
		return nil, nil, err
	}
	dead, err := k.Dead(ctx)
	return k, dead, err
}

// claimBucket is the bucket. A cluster that cannot make it at this moment is asked again while ctx lasts.
func (c *Conn) claimBucket(ctx context.Context, source string, manage Manage) (natsjs.KeyValue, error) {
	for {
		kv, err := c.stateBucket(ctx, source, manage)
		if !isUnsettled(err) || pause(ctx, bucketRetry) != nil {
			return kv, err
		}
	}
}

// isUnsettled reports whether a cluster refused a request for a state that passes by itself: it has no meta leader, or the leader
// has not heard yet what a server that just came or came back has room for, and can place nothing there
// (jetstream_cluster.go, selectPeerGroup).
func isUnsettled(err error) bool {
	const noSuitablePeers, unavailable natsjs.ErrorCode = 10005, 10008
	var api *natsjs.APIError
	if !errors.As(err, &api) {
		return false
	}
	return api.ErrorCode == unavailable || api.ErrorCode == noSuitablePeers && strings.Contains(api.Description, "offline")
}

func claimsKey(stream string) string {
	sum := fnv.New128a()
	sum.Write([]byte(stream))
	return "dlq." + hex.EncodeToString(sum.Sum(nil))
}

// IsNoBucket reports whether claims could not be opened because there is no bucket: then nobody has any.
func IsNoBucket(err error) bool { return errors.Is(err, natsjs.ErrBucketNotFound) }

// Take claims entries and returns those that it got; the others are claimed by a run that lives, whose owner is returned.
func (k *Claims) Take(ctx context.Context, entries ...uint64) (got []uint64, owner string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before := k.self.Work // what an earlier try took may be somebody else's at the next
	err = k.changeLocked(ctx, func(t *claimTable) error {
		got, owner = got[:0], ""
		for _, n := range entries {
			if holder := t.holder(n); holder != "" {
				owner = holder
			} else {
				got = append(got, n)
			}
		}
		if len(got) == 0 {
			return errNothingToClaim
		}
		k.self.Work = append(slices.DeleteFunc(slices.Clone(before), func(n uint64) bool { return slices.Contains(got, n) }), got...)
		return nil
	})
	if err != nil {
		k.self.Work = before
	}
	if errors.Is(err, errNothingToClaim) {
		return nil, owner, nil
	}
	return got, owner, err
}

var errNothingToClaim = errors.New("nothing to claim")

// Done notes that a claimed entry is handled and only has to be removed, whoever does it: parts are all its sequences, the
// first one the entry's.
func (k *Claims) Done(ctx context.Context, parts []uint64) error {
	return k.change(ctx, func(*claimTable) error {
		k.self.Work = slices.DeleteFunc(k.self.Work, func(n uint64) bool { return n == parts[0] })
		if !slices.ContainsFunc(k.self.Done, func(d []uint64) bool { return d[0] == parts[0] }) {
			k.self.Done = append(k.self.Done, parts)
		}
		return nil
	})
}

// Release gives up claims, also on what was done.
func (k *Claims) Release(ctx context.Context, entries ...uint64) error {
	return k.change(ctx, func(*claimTable) error {
		k.self.Work = slices.DeleteFunc(k.self.Work, func(n uint64) bool { return slices.Contains(entries, n) })
		k.self.Done = slices.DeleteFunc(k.self.Done, func(d []uint64) bool { return slices.Contains(entries, d[0]) })
		return nil
	})
}

// Renew says that the run lives. It is to be called every third of ClaimLease.
func (k *Claims) Renew(ctx context.Context) error {
	return k.change(ctx, func(*claimTable) error { return nil })
}

// Adopted forgets the runs that Dead told of last: what they were done with was removed.
func (k *Claims) Adopted(ctx context.Context) error {
	return k.change(ctx, func(t *claimTable) error {
		t.Runs = slices.DeleteFunc(t.Runs, func(r claimRun) bool { return slices.Contains(k.dead, r.ID) })
		return nil
	})
}

// Close ends the run and its claims. What it was done with and did not release stays claimed, as that of a run that died.
func (k *Claims) Close(ctx context.Context) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.closed = true
	return k.changeLocked(ctx, func(*claimTable) error { return nil })
}

// Company is a number that is another one after a change of the claims if another run had claims since the change before, or may have had: while
// it stays the same nobody else began with an entry, worked on one, ended or was killed.
func (k *Claims) Company() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.company
}

// Dead is what runs that died were done with and did not remove.
func (k *Claims) Dead(ctx context.Context) (done [][]uint64, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.read(ctx); err != nil {
		return nil, err
	}
	now := k.now()
	k.dead = nil
	for _, r := range k.table.Runs {
		if r.Until.Before(now) {
			done = append(done, r.Done...)
			k.dead = append(k.dead, r.ID)
		}
	}
	return done, nil
}

// holder is the owner of the claim on an entry; empty if there is none. Claims of the dead on what they worked on do not count, those
// on what they were done with do until it is removed.
func (t *claimTable) holder(entry uint64) string {
	for _, r := range t.Runs {
		if slices.Contains(r.Work, entry) || slices.ContainsFunc(r.Done, func(d []uint64) bool { return d[0] == entry }) {
			return r.Owner
		}
	}
	return ""
}

// now is the server's time.
func (k *Claims) now() time.Time {
	if k.server.IsZero() {
		return time.Time{}
	}
	return k.server.Add(time.Since(k.local))
}

func (k *Claims) change(ctx context.Context, f func(*claimTable) error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.changeLocked(ctx, f)
}

// changeLocked changes the claims as f says, which may be called again, and says that the run lives. The caller holds k.mu.
func (k *Claims) changeLocked(ctx context.Context, f func(*claimTable) error) error {
	for tries := range claimTries {
		cached := k.known
		if !cached {
			if err := k.read(ctx); err != nil {
				return err
			}
		}
		t := claimTable{Created: k.created, Runs: slices.Clone(k.table.Runs)}
		k.bury(&t)
		if err := f(&t); err != nil {
			k.known = false
			if cached {
				continue // that was by what was known, which may be old
			}
			return err
		}
		others := slices.Clone(t.Runs)
		switch {
		case !k.closed:
			k.self.Until = k.now().Add(ClaimLease)
			t.Runs = append(t.Runs, k.self)
		case len(k.self.Done) > 0: // it could not remove all that
			t.Runs = append(t.Runs, claimRun{ID: k.self.ID, Owner: k.self.Owner, Until: k.now().Add(-ClaimLease), Done: k.self.Done})
		}
		before := time.Now()
		revision, err := k.write(ctx, t)
		switch {
		case err == nil:
			if k.server.IsZero() {
				k.local = before
			}
			if len(k.table.Runs) > 0 {
				k.company++
			}
			k.table, k.revision = claimTable{Created: k.created, Runs: others}, revision
			return nil
		case isConflict(err):
			k.known = false // somebody else changed them, or a replica answered that lags behind, which may last
			if err := pause(ctx, rand.N(claimPause*time.Duration(1+tries))); err != nil {
				return err
			}
		default:
			k.known = false
			return fmt.Errorf("claiming in bucket %s: %w", StateBucket, err)
		}
	}
	return fmt.Errorf("claiming in bucket %s: others change it all the time", StateBucket)
}

// bury takes from the runs that died what they worked on: anybody may. What they were done with stays until it is adopted.
func (k *Claims) bury(t *claimTable) {
	now := k.now()
	for i := range t.Runs {
		if t.Runs[i].Until.Before(now) {
			t.Runs[i].Work = nil
		}
	}
	t.Runs = slices.DeleteFunc(t.Runs, func(r claimRun) bool { return len(r.Done) == 0 && r.Until.Before(now) })
}

func (k *Claims) write(ctx context.Context, t claimTable) (uint64, error) {
	value, err := json.Marshal(t)
	if err != nil {
		return 0, err
	}
	var revision uint64
	err = k.answered(ctx, func(ctx context.Context, kv natsjs.KeyValue) (err error) {
		if k.revision == 0 {
			revision, err = kv.Create(ctx, k.key, value)
		} else {
			revision, err = kv.Update(ctx, k.key, value, k.revision)
		}
		return err
	})
	return revision, err
}

// open looks the bucket up again for another client.
func (k *Claims) open(ctx context.Context) error {
	client := k.conn.client.Load()
	if k.client == client {
		return nil
	}
	kv, err := k.conn.findStateBucket(ctx)
	if err != nil && (isAway(err) || errors.Is(context.Cause(ctx), ErrNotConnected)) {
		return ErrNotConnected
	}
	if err == nil {
		k.kv, k.client = kv, client
	}
	return err
}

// isConflict reports whether a change met one of somebody else: the server says so with one code, and with another where there are
// several copies.
func isConflict(err error) bool {
	const severalCopies natsjs.ErrorCode = 10164
	var js natsjs.JetStreamError
	var api *natsjs.APIError
	switch {
	case errors.Is(err, natsjs.ErrKeyExists):
		return true
	case errors.As(err, &api):
	case errors.As(err, &js):
		api = js.APIError()
	}
	return api != nil && (api.ErrorCode == natsjs.JSErrCodeStreamWrongLastSequence || api.ErrorCode == severalCopies)
}

// answered repeats a request while nobody is there to answer: a bucket that was just made, or that has no leader for a moment.
func (k *Claims) answered(ctx context.Context, request func(context.Context, natsjs.KeyValue) error) error {
	once := func() error {
		within, cancel := k.conn.bounded(ctx, apiTimeout)
		defer cancel()
		if err := k.open(within); err != nil {
			return err
		}
		subject := "$KV." + StateBucket + "." + k.key
		err := k.conn.permitted(within, func(ctx context.Context) error { return request(ctx, k.kv) }, subject, k.conn.prefix+subject)
		if err != nil && (isAway(err) || errors.Is(context.Cause(within), ErrNotConnected)) {
			return ErrNotConnected
		}
		return err
	}
	for tries := 0; ; tries++ {
		err := once()
		if !errors.Is(err, nats.ErrNoResponders) && !errors.Is(err, natsjs.ErrNoStreamResponse) || tries == claimTries {
			return err
		}
		if err := pause(ctx, bucketRetry); err != nil {
			return err
		}
	}
}

// pause waits, or ends with ctx.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// read learns the claims. A key that cannot be read as claims, or is about a stream that is gone, is as good as none.
func (k *Claims) read(ctx context.Context) error {
	var entry natsjs.KeyValueEntry
	err := k.answered(ctx, func(ctx context.Context, kv natsjs.KeyValue) (err error) {
		entry, err = kv.Get(ctx, k.key)
		return err
	})
	before := k.revision
	k.table, k.revision = claimTable{}, 0
	defer func() {
		if k.revision != before { // it is not of the last change here
			k.company++
		}
	}()
	switch {
	case errors.Is(err, natsjs.ErrKeyNotFound):
	case err != nil:
		return fmt.Errorf("reading the claims in bucket %s: %w", StateBucket, err)
	default:
		k.revision = entry.Revision()
		var t claimTable
		if json.Unmarshal(entry.Value(), &t) == nil && t.Created.Equal(k.created) {
			t.Runs = slices.DeleteFunc(t.Runs, func(r claimRun) bool { return r.ID == k.self.ID })
			t.Runs = slices.DeleteFunc(t.Runs, func(r claimRun) bool {
				return slices.ContainsFunc(r.Done, func(d []uint64) bool { return len(d) == 0 })
			})
			k.table = t
		}
		if !k.local.IsZero() && k.server.IsZero() {
			k.server = entry.Created()
		}
	}
	k.known = true
	return nil
}
