package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"
)

// order is the body of a sample message. The sample app reads bodies of others too, so anything may be missing.
type order struct {
	Order    string      `json:"order"`
	Customer *string     `json:"customer,omitempty"`
	Items    int         `json:"items,omitempty"`
	Total    json.Number `json:"total,omitempty"`
	Currency string      `json:"currency,omitempty"`
	Test     bool        `json:"test,omitempty"`
}

// fate is what the sample app makes of an order.
type fate uint8

const (
	fine     fate = iota // accepted at once
	busy                 // 503 at first
	busyLong             // 503 with Retry-After, twice
	hopeless             // 503 always
	negative             // a negative total: 422
	nameless             // no customer: 422
	trial                // a test order: dropped
)

// opening are the fates of the first orders: each kind is seen early.
var opening = [...]fate{fine, fine, busy, fine, negative, fine, fine, hopeless, fine, busyLong, fine, trial, fine, nameless}

// orderName is the name of the nth order, n from 1.
func orderName(n uint64) string { return fmt.Sprintf("A-%04d", n) }

// fateOf is the fate of the order of this name, fine for the names of others. It is the same in every run.
func fateOf(name string) fate {
	digits, ok := strings.CutPrefix(name, "A-")
	n, err := strconv.ParseUint(digits, 10, 64)
	switch {
	case !ok || err != nil || n == 0:
		return fine
	case n <= uint64(len(opening)):
		return opening[n-1]
	}
	switch p := rand.New(rand.NewPCG(n, 1)).IntN(100); {
	case p < 10:
		return busy
	case p < 15:
		return busyLong
	case p < 18:
		return hopeless
	case p < 22:
		return negative
	case p < 24:
		return nameless
	case p < 26:
		return trial
	}
	return fine
}

// sample is a message to publish.
type sample struct {
	event string // last token of its subject
	id    string
	body  []byte
	of    *sample // the one that it repeats, nil if it is new

	// Once it is stored:
	sequence uint64
	stored   time.Time
}

// repeats is the sequence of the message that m repeats, 0 if it is new.
func (m *sample) repeats() uint64 {
	if m.of == nil {
		return 0
	}
	return m.of.sequence
}

var (
	customers = [...]string{"Ada Brandt", "Jonas Lindqvist", "Mei Tanaka", "Lucía Ortega", "Samuel Okafor", "Ingrid Vass"}
	events    = [...]string{"created", "created", "created", "paid", "paid", "shipped"}
)

// choice is how many messages there are to choose from when one is repeated.
const choice = 5

// plan makes the sample messages, the same ones in every run.
type plan struct {
	random   *rand.Rand
	next     uint64    // number of the next order
	distance int       // how far back a message is repeated from, at least
	count    int       // messages made
	recent   []*sample // that will be accepted, the newest last
}

// newPlan begins with order number first.
func newPlan(first uint64, distance int) *plan {
	return &plan{random: rand.New(rand.NewPCG(first, 2)), next: first, distance: distance}
}

// message makes the next one.
func (p *plan) message() *sample {
	p.count++
	if of := p.repeated(); of != nil {
		return &sample{event: of.event, id: of.id, body: of.body, of: of}
	}
	name := orderName(p.next)
	p.next++
	m := &sample{event: events[p.random.IntN(len(events))], id: name, body: p.order(name)}
	if fateOf(name) == fine {
		p.recent = append(p.recent, m)
		p.recent = p.recent[max(0, len(p.recent)-p.distance-choice):]
	}
	return m
}

// repeated chooses a message to repeat now and then, early for the first time.
func (p *plan) repeated() *sample {
	old := len(p.recent) - p.distance
	switch {
	case p.count == 6 && len(p.recent) > 0:
		return p.take(0)
	case p.count > 10 && old > 0 && p.random.IntN(100) < 8:
		return p.take(p.random.IntN(old))
	}
	return nil
}

// take is the ith of the recent ones, which is repeated only once.
func (p *plan) take(i int) *sample {
	m := p.recent[i]
	p.recent = slices.Delete(p.recent, i, i+1)
	return m
}

func (p *plan) order(name string) []byte {
	customer := customers[p.random.IntN(len(customers))]
	cents := 500 + p.random.IntN(20000)
	o := order{Order: name, Customer: &customer, Items: 1 + p.random.IntN(4), Currency: "EUR"}
	switch fateOf(name) {
	case negative:
		cents = -cents
	case nameless:
		customer = ""
	case trial:
		o.Test = true
	}
	o.Total = json.Number(strconv.FormatFloat(float64(cents)/100, 'f', 2, 64))
	body, err := json.Marshal(o)
	if err != nil {
		panic(err) // it is made of texts and numbers
	}
	return body
}
