package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
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
	testing              // a test order: dropped
)

// opening are the fates of the first orders: each kind is seen early.
var opening = [...]fate{fine, fine, busy, fine, negative, fine, fine, hopeless, fine, busyLong, fine, testing, fine, nameless}

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
		return testing
	}
	return fine
}

// sample is a message to publish.
type sample struct {
	event string // last token of its subject
	id    string
	body  []byte
	again bool // repeats one that was published before
}

var (
	customers = [...]string{"Ada Brandt", "Jonas Lindqvist", "Mei Tanaka", "Lucía Ortega", "Samuel Okafor", "Ingrid Vass"}
	events    = [...]string{"created", "created", "created", "paid", "paid", "shipped"}
)

// plan makes the sample messages, the same ones in every run.
type plan struct {
	random *rand.Rand
	next   uint64   // number of the next order
	count  int      // messages made
	recent []sample // that will be accepted, the newest last
}

// newPlan begins with order number first.
func newPlan(first uint64) *plan {
	return &plan{random: rand.New(rand.NewPCG(first, 2)), next: first}
}

// message makes the next one.
func (p *plan) message() sample {
	p.count++
	if n := len(p.recent); n > 0 && (p.count == 6 || p.count > 10 && p.random.IntN(100) < 8) {
		again := p.recent[p.random.IntN(n)]
		again.again = true
		return again
	}
	name := orderName(p.next)
	p.next++
	m := sample{event: events[p.random.IntN(len(events))], id: name, body: p.order(name)}
	if fateOf(name) == fine {
		p.recent = append(p.recent, m)
		p.recent = p.recent[max(0, len(p.recent)-5):]
	}
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
	case testing:
		o.Test = true
	}
	o.Total = json.Number(strconv.FormatFloat(float64(cents)/100, 'f', 2, 64))
	body, err := json.Marshal(o)
	if err != nil {
		panic(err) // it is made of texts and numbers
	}
	return body
}
