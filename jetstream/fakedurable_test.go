package jetstream

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// fakeDurable is a model of the server's side of one durable, as far as order is concerned: how deliveries are numbered, what is
// pending, when it expires, in what order it is delivered again, and to whom. Messages lie in memory; their subjects are their keys.
type fakeDurable struct {
	ackWait  time.Duration
	pinned   bool
	filtered bool      // it wants what has a subject of two tokens only
	lateAt   time.Time // when a verdict came last of a client over a message that another one has
	refused  bool      // the user may not ack
	ignored  bool      // verdicts do nothing, and are not confirmed
	once     bool      // its max_deliver is 1
	room     int       // its max_waiting; 0: no limit
	attends  bool      // it knows at once which inboxes are gone, and sends them nothing

	mu         sync.Mutex
	random     *rand.Rand
	wires      []*fakeWire
	created    time.Time
	stream     []string // subjects, from sequence 1 on
	sequence   uint64   // last stream sequence delivered
	number     uint64   // deliveries so far
	floor      settledTo
	pending    map[uint64]*pendingMessage
	disk       stateOnDisk
	queue      []uint64 // to be delivered again
	waiting    []*fakeRequest
	pin        string
	pinUntil   time.Time
	pins       int
	leaderless bool
	electedAt  time.Time
	resetAt    time.Time
	forgotAt   time.Time
	mute       bool // it tells of no election
	deaf       bool // questions for the durable are lost
	unheard    bool // nobody hears verdicts
	asked      int  // such questions and verdicts

	busyAt time.Time // see withoutEnd
	busy   int
}

// settledTo is the acknowledgement floor: all up to a sequence, or up to the number of a delivery, is settled.
type settledTo struct{ sequence, number uint64 }

type pendingMessage struct {
	number     uint64    // of the first delivery
	deadline   time.Time // when it expires, or its delay is over
	queued     bool
	deliveries int
	to         *fakeWire // who has the latest delivery
	prior      time.Time // the deadline before it was kept alive last
	keptAt     time.Time // when that was
}

type fakeRequest struct {
	wire          *fakeWire
	inbox         string
	batch         int
	id            string
	beat          time.Duration
	until, beatAt time.Time
}

// stateOnDisk is what a server that is killed comes back with: what it wrote last.
type stateOnDisk struct {
	writtenAt        time.Time
	sequence, number uint64
	floor            settledTo
	pending          map[uint64]*pendingMessage
}

// writeEvery is how often a server writes the state of a durable.
const writeEvery = 100 * time.Millisecond

// notReplicated is how old may be what another server does not know yet.
const notReplicated = 100 * time.Millisecond

const fakePinTTL = 3 * time.Second

func newFakeDurable(seed uint64, ackWait time.Duration, pinned, filtered bool) *fakeDurable {
	return &fakeDurable{ackWait: ackWait, pinned: pinned, filtered: filtered, random: rand.New(rand.NewPCG(seed, 1)), created: time.Now(), pending: map[uint64]*pendingMessage{}}
}

// connect makes a client's way to the model.
func (d *fakeDurable) connect() *fakeWire {
	w := &fakeWire{take: d.take}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wires = append(d.wires, w)
	return w
}

func (d *fakeDurable) publish(key string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stream = append(d.stream, key)
}

// restart cuts everybody off, and forgets what a server forgets: whom it waits for, whom the durable is pinned to, and, within
// an ack wait, until when what is pending is leased: that only where clients need not rely on it. It is away for some time.
func (d *fakeDurable) restart(away time.Duration) {
	d.mu.Lock()
	wires := slices.Clone(d.wires)
	d.mu.Unlock()
	for _, w := range wires {
		w.set(true)
	}
	time.Sleep(away)
	d.mu.Lock()
	d.forget()
	for _, p := range d.pending {
		p.queued = false
		p.deadline = time.Now().Add(d.ackWait)
		if d.pinned {
			p.deadline = time.Now().Add(time.Duration(d.random.Int64N(int64(d.ackWait))))
		}
	}
	d.mu.Unlock()
	for _, w := range wires {
		w.set(false)
	}
}

// crash kills the server, and starts it after some time with the state that it wrote last.
func (d *fakeDurable) crash(away time.Duration) {
	d.mu.Lock()
	wires, written := slices.Clone(d.wires), d.disk
	d.mu.Unlock()
	for _, w := range wires {
		w.set(true)
	}
	time.Sleep(away)
	for _, w := range wires {
		w.set(true) // a cut of its own may have been healed
	}
	d.mu.Lock()
	d.waiting, d.pin, d.queue, d.forgotAt = nil, "", nil, time.Now()
	d.sequence, d.number, d.floor, d.pending = written.sequence, written.number, written.floor, copyPending(written.pending)
	d.mu.Unlock()
	for _, w := range wires {
		w.set(false)
	}
}

// write writes the state, if that is due.
func (d *fakeDurable) write(now time.Time) {
	if now.Sub(d.disk.writtenAt) >= writeEvery {
		d.disk = stateOnDisk{now, d.sequence, d.number, d.floor, copyPending(d.pending)}
	}
}

// copyPending copies what is pending, as it is known after a restart: nothing waits for redelivery.
func copyPending(pending map[uint64]*pendingMessage) map[uint64]*pendingMessage {
	all := make(map[uint64]*pendingMessage, len(pending))
	for seq, p := range pending {
		c := *p
		c.queued = false
		all[seq] = &c
	}
	return all
}

// reset has the durable begin again after its floor, as an operator can.
func (d *fakeDurable) reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queue, d.pending, d.sequence, d.number = nil, map[uint64]*pendingMessage{}, d.floor.sequence, 0
	d.floor.number, d.resetAt, d.forgotAt = 0, time.Now(), time.Now()
	d.deliver()
}

// mayShare reports whether a message may be leased by two: the server forgot who had it, and gave it to another before the first one looked at the
// durable, whose numbers had come that far again. Where it is pinned it gives all to one; and after a kill all look at it.
func (d *fakeDurable) mayShare() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	justReset := !d.resetAt.IsZero() && time.Since(d.resetAt) < 2*infoEvery
	return len(d.wires) > 1 && (!d.pinned && !d.forgotAt.IsZero() || justReset)
}

// wasReset reports whether the durable was reset just now, which its clients see when they look at it.
func (d *fakeDurable) wasReset() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.resetAt.IsZero() && time.Since(d.resetAt) < 2*infoEvery
}

// hasNew reports whether messages were not delivered yet.
func (d *fakeDurable) hasNew() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.following() > 0
}

// knowsSettled reports whether a message is done as far as the server knows.
func (d *fakeDurable) knowsSettled(sequence uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return sequence <= d.sequence && d.pending[sequence] == nil
}

// elect has no server lead the durable for some time, and then another one, which may not know what was done last. It tells of that, unless it is
// mute, before it delivers anything.
func (d *fakeDurable) elect(away time.Duration) {
	d.endRequests("409 Leadership Change")
	d.mu.Lock()
	d.leaderless = true
	for _, p := range d.pending {
		if time.Since(p.keptAt) < notReplicated && d.random.IntN(2) == 0 {
			p.deadline = p.prior
		}
	}
	d.mu.Unlock()
	time.Sleep(away)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forget()
	for _, p := range d.pending {
		p.queued = false
	}
	d.leaderless, d.electedAt = false, time.Now()
	for _, w := range d.wires {
		if !d.mute {
			w.deliver("$JS.EVENT.ADVISORY.CONSUMER.LEADER_ELECTED.S.d", "", "", []byte("{}"))
		}
	}
	d.deliver()
}

// mayCountWrong reports whether a verdict came late a while ago: then as many messages can be pending as a client has, although one of them is
// another's (decision 14, two counts).
func (d *fakeDurable) mayCountWrong() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Since(d.lateAt) < 3*d.ackWait
}

// electsNow reports whether there was an election at this very moment: nobody can know yet.
func (d *fakeDurable) electsNow() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Since(d.electedAt) < time.Millisecond
}

// forget forgets what another server does not know. The caller holds d.mu.
func (d *fakeDurable) forget() {
	d.waiting, d.pin, d.queue = nil, "", nil
	for p := d.pending[d.sequence]; d.pinned && p != nil && p.deliveries == 1 && d.random.IntN(2) == 0; p = d.pending[d.sequence] {
		delete(d.pending, d.sequence) // the new leader was not told of this delivery
		for d.sequence--; d.sequence > 0 && !d.wants(d.sequence); {
			d.sequence--
		}
		d.number--
	}
}

func (d *fakeDurable) keys() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stream
}

// settled reports whether nothing is left to do.
func (d *fakeDurable) settled() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.pending) == 0 && d.following() == 0
}

// wants reports whether the durable delivers a message.
func (d *fakeDurable) wants(sequence uint64) bool {
	return !d.filtered || strings.Count(d.stream[sequence-1], ".") == 1
}

// left is how many messages were not delivered yet.
func (d *fakeDurable) left() (n int) {
	for seq := d.sequence + 1; int(seq) <= len(d.stream); seq++ {
		if d.wants(seq) {
			n++
		}
	}
	return n
}

// following is the sequence of the next new message to deliver; 0 if there is none.
func (d *fakeDurable) following() uint64 {
	for seq := d.sequence + 1; int(seq) <= len(d.stream); seq++ {
		if d.wants(seq) {
			return seq
		}
	}
	return 0
}

func (d *fakeDurable) state() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return fmt.Sprintf("%d of %d delivered, %d pending, floor %d, queue %v, %d requests, pin %q", d.sequence, len(d.stream), len(d.pending), d.floor.sequence, d.queue, len(d.waiting), d.pin)
}

// run lets time pass until stop is closed.
func (d *fakeDurable) run(stop <-chan struct{}) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
			d.mu.Lock()
			d.pass(time.Now())
			d.deliver()
			d.mu.Unlock()
		}
	}
}

// pass does what is due.
func (d *fakeDurable) pass(now time.Time) {
	var due []uint64
	for seq, p := range d.pending {
		if !p.queued && !now.Before(p.deadline) {
			due = append(due, seq)
		}
	}
	slices.SortFunc(due, func(a, b uint64) int {
		return cmp.Or(d.pending[a].deadline.Compare(d.pending[b].deadline), cmp.Compare(a, b))
	})
	for _, seq := range due {
		d.pending[seq].queued = true
		d.queue = append(d.queue, seq)
	}
	if d.pin != "" && now.After(d.pinUntil) {
		d.pin = ""
	}
	d.write(now)
	d.waiting = slices.DeleteFunc(d.waiting, func(r *fakeRequest) bool {
		switch {
		case now.After(r.until):
			r.status("408 Request Timeout", r.batch)
			return true
		case now.After(r.beatAt):
			r.beatAt = now.Add(r.beat)
			return !r.wire.deliver(r.inbox, "", "NATS/1.0 100 Idle Heartbeat\r\n\r\n", nil)
		}
		return false
	})
}

// status ends a request.
func (r *fakeRequest) status(text string, left int) {
	r.wire.deliver(r.inbox, "", fmt.Sprintf("NATS/1.0 %s\r\nNats-Pending-Messages: %d\r\nNats-Pending-Bytes: 0\r\n\r\n", text, left), nil)
}

// deliver hands out what there is, first what is to be delivered again.
func (d *fakeDurable) deliver() {
	for !d.leaderless {
		for len(d.queue) > 0 && (d.pending[d.queue[0]] == nil || !d.pending[d.queue[0]].queued) {
			d.queue = d.queue[1:]
		}
		if len(d.queue) == 0 && d.following() == 0 {
			return
		}
		r := d.next()
		if r == nil {
			return
		}
		var seq uint64
		if len(d.queue) > 0 {
			seq, d.queue = d.queue[0], d.queue[1:]
		} else {
			d.sequence = d.following()
			seq = d.sequence
			d.pending[seq] = &pendingMessage{number: d.number + 1}
		}
		d.give(r, seq)
	}
}

// next is the request that the next message is for.
func (d *fakeDurable) next() *fakeRequest {
	if d.attends {
		d.waiting = slices.DeleteFunc(d.waiting, func(r *fakeRequest) bool { return !r.wire.listens(r.inbox) })
	}
	i := slices.IndexFunc(d.waiting, func(r *fakeRequest) bool { return !d.pinned || d.pin == "" || r.id == d.pin })
	if i < 0 {
		return nil
	}
	r := d.waiting[i]
	if r.batch--; r.batch == 0 {
		d.waiting = slices.Delete(d.waiting, i, i+1)
	} else if !d.pinned { // clients take turns
		d.waiting = append(slices.Delete(d.waiting, i, i+1), r)
	}
	return r
}

func (d *fakeDurable) give(r *fakeRequest, seq uint64) {
	header := ""
	if d.pinned {
		if d.pin == "" {
			d.pins++
			d.pin = fmt.Sprint("pin", d.pins)
			d.pinUntil = time.Now().Add(fakePinTTL)
			r.id = d.pin
		}
		header = "NATS/1.0\r\n" + pinHeader + ": " + d.pin + "\r\n\r\n"
	}
	p := d.pending[seq]
	p.queued, p.deadline = false, time.Now().Add(d.ackWait)
	p.deliveries++
	p.to = r.wire
	d.number++
	reply := fmt.Sprintf("$JS.ACK.S.d.%d.%d.%d.%d.%d", p.deliveries, seq, d.number, d.created.UnixNano(), d.left())
	subject := d.stream[seq-1]
	r.wire.deliverTo(r.inbox, subject, reply, header, nil)
}

// settle takes a message off what is pending, and moves the floor as the server does (filestore.go, UpdateAcks): to right below the first that
// is pending, and where nothing is, to the last one delivered.
func (d *fakeDurable) settle(seq uint64) {
	number := d.pending[seq].number
	delete(d.pending, seq)
	switch {
	case len(d.pending) == 0:
		d.floor = settledTo{d.sequence, d.number}
	case number == d.floor.number+1:
		first := slices.Min(slices.Collect(maps.Keys(d.pending)))
		d.floor = settledTo{first - 1, d.pending[first].number - 1}
	}
}

// again is how many of what is pending were delivered more than once.
func (d *fakeDurable) again() (n int) {
	for _, p := range d.pending {
		if p.deliveries > 1 {
			n++
		}
	}
	return n
}

// take takes what a client publishes.
func (d *fakeDurable) take(w *fakeWire, subject, reply string, body []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.withoutEnd(subject)
	api, isAPI := strings.CutPrefix(subject, "$JS.API.")
	switch {
	case d.unheard && strings.HasPrefix(subject, "$JS.ACK."):
		d.asked++
		w.deliver(reply, "", "NATS/1.0 503\r\n\r\n", nil)
	case d.leaderless && (strings.HasPrefix(subject, "$JS.ACK.") || api == "CONSUMER.MSG.NEXT.S.d"):
		if reply != "" {
			w.deliver(reply, "", "NATS/1.0 503\r\n\r\n", nil)
		}
	case d.refused && strings.HasPrefix(subject, "$JS.ACK."):
		w.send([]byte("-ERR 'Permissions Violation for Publish to \"" + subject + "\"'\r\n"))
	case d.ignored && strings.HasPrefix(subject, "$JS.ACK.") && string(body) != string(inProgress):
	case strings.HasPrefix(subject, "$JS.ACK."):
		if d.ack(w, strings.Split(subject, "."), string(body)) && reply != "" {
			w.deliver(reply, "", "", nil)
		}
	case api == "CONSUMER.MSG.NEXT.S.d":
		d.request(w, reply, body)
	case api == "CONSUMER.INFO.S.d" && (d.deaf || d.leaderless):
		d.asked++
	case isAPI:
		w.deliver(reply, "", "", d.answer(api, body))
	}
	d.deliver()
}

// withoutEnd ends a test in which a client publishes on and on: no time passes in a bubble while it does.
func (d *fakeDurable) withoutEnd(subject string) {
	if now := time.Now(); !now.Equal(d.busyAt) {
		d.busyAt, d.busy = now, 0
	}
	if d.busy++; d.busy > 100_000 {
		panic("a client publishes without end, last to " + subject)
	}
}

func (d *fakeDurable) request(w *fakeWire, inbox string, body []byte) {
	var q struct {
		Batch    int
		Expires  time.Duration
		MaxBytes int           `json:"max_bytes"`
		Beat     time.Duration `json:"idle_heartbeat"`
		ID       string
	}
	_ = json.Unmarshal(body, &q)
	now := time.Now()
	r := &fakeRequest{wire: w, inbox: inbox, batch: q.Batch, id: q.ID, until: now.Add(q.Expires), beat: q.Beat, beatAt: now.Add(q.Beat)}
	if d.pinned && q.ID != "" {
		if q.ID != d.pin {
			r.status("423 Nats-Wrong-Pin-Id", q.Batch)
			return
		}
		d.pinUntil = now.Add(fakePinTTL)
	}
	if full := d.room > 0 && len(d.waiting) >= d.room; q.MaxBytes != 1 && !full { // else it only renews the pin, or is refused without a word
		d.waiting = append(d.waiting, r)
	}
}

// ack obeys a verdict: it goes by the sequence, whichever delivery it is about. It reports whether it is confirmed: an ack of what is not
// delivered yet, as far as the server knows, is not.
func (d *fakeDurable) ack(w *fakeWire, f []string, verdict string) bool {
	seq, _ := strconv.ParseUint(f[5], 10, 64)
	p := d.pending[seq]
	word, rest, _ := strings.Cut(verdict, " ")
	if p == nil {
		return seq <= d.sequence || word != "+ACK" && word != "+TERM"
	}
	switch word {
	case "+ACK", "+TERM":
		if p.to != w {
			d.lateAt = time.Now()
		}
		d.settle(seq)
	case "+WPI":
		if !p.queued {
			p.prior, p.keptAt = p.deadline, time.Now()
			p.deadline = time.Now().Add(d.ackWait)
		}
	case "-NAK":
		var q struct{ Delay time.Duration }
		_ = json.Unmarshal([]byte(rest), &q)
		if p.deadline = time.Now().Add(q.Delay); q.Delay == 0 && !p.queued {
			p.queued = true
			d.queue = append(d.queue, seq)
		}
	}
	return true
}

// find is the first message from a sequence on with a subject; 0 if there is none.
func (d *fakeDurable) find(request []byte) uint64 {
	var q struct {
		Seq     uint64
		Subject string `json:"next_by_subj"`
	}
	_ = json.Unmarshal(request, &q)
	for seq := max(q.Seq, 1); int(seq) <= len(d.stream); seq++ {
		if subjectMatches(q.Subject, d.stream[seq-1]) {
			return seq
		}
	}
	return 0
}

// answer answers a request to the API.
func (d *fakeDurable) answer(api string, body []byte) []byte {
	type object = map[string]any
	var out any
	switch api {
	case "STREAM.INFO.S":
		out = object{"config": object{"name": "S", "subjects": []string{"s.>"}}, "created": d.created, "state": object{}}
	case "CONSUMER.INFO.S.d":
		config := object{"durable_name": "d", "ack_policy": "explicit", "deliver_policy": "all", "ack_wait": d.ackWait, "max_ack_pending": 1000, "max_deliver": -1}
		info := object{
			"stream_name": "S", "name": "d", "created": d.created, "config": config,
			"delivered":       object{"consumer_seq": d.number, "stream_seq": d.sequence},
			"ack_floor":       object{"consumer_seq": d.floor.number, "stream_seq": d.floor.sequence},
			"num_ack_pending": len(d.pending), "num_redelivered": d.again(), "num_pending": d.left(), "num_waiting": len(d.waiting),
		}
		if d.once {
			config["max_deliver"] = 1
		}
		if d.room > 0 {
			config["max_waiting"] = d.room
		}
		if d.filtered {
			config["filter_subject"] = "s.*"
		}
		if d.pinned {
			config["priority_groups"], config["priority_policy"], config["priority_timeout"] = []string{pinGroup}, "pinned_client", fakePinTTL
			info["priority_groups"] = []object{{"group": pinGroup, "pinned_client_id": d.pin}}
		}
		out = info
	case "STREAM.MSG.GET.S":
		out = object{"error": object{"code": 404, "err_code": 10037, "description": "no message found"}}
		if seq := d.find(body); seq > 0 {
			out = object{"message": object{"subject": d.stream[seq-1], "seq": seq, "time": d.created}}
		}
	case "CONSUMER.UNPIN.S.d":
		d.pin = ""
		out = object{}
	default:
		out = object{"error": object{"code": 404, "err_code": 10059, "description": "stream not found"}}
	}
	b, _ := json.Marshal(out)
	return b
}

// hear has verdicts obeyed, or lost.
func (d *fakeDurable) hear(yes bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ignored = !yes
}

// setAckWait edits the durable.
func (d *fakeDurable) setAckWait(wait time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ackWait = wait
	for _, p := range d.pending {
		if soon := time.Now().Add(wait); p.deadline.After(soon) {
			p.deadline = soon
		}
	}
}

// endRequests ends all requests that wait.
func (d *fakeDurable) endRequests(status string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.waiting {
		r.status(status, r.batch)
	}
	d.waiting = nil
}

// setOnce edits the durable: each message is delivered once.
func (d *fakeDurable) setOnce() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.once = true
}

// dropRequests forgets all requests that wait, without a word.
func (d *fakeDurable) dropRequests() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting = nil
}

// loseVerdicts has nobody hear verdicts, or somebody again. It returns how many, and questions for the durable, were lost so far.
func (d *fakeDurable) loseVerdicts(yes bool) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.unheard = yes
	return d.asked
}

func (d *fakeDurable) refuseAcks(yes bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.refused = yes
}
