//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// mutant is a sidecar with one safety line broken: old is replaced by broken, at its first place in the file.
type mutant struct {
	name        string
	file        string
	old, broken string
	needs       kind            // a fault without which nothing shows
	with        func(plan) bool // plans in which it shows; nil: any
	want        []string        // the rules that are broken by it
}

var mutants = []mutant{
	{
		"terms before the dlq stored", "internal/pipeline/graves.go",
		"\tdropped, err := g.p.DeadLetters.Put(ctx, dl.letter)\n",
		"\tdl.message.Term(dl.letter.Reason)\n\tdropped, err := g.p.DeadLetters.Put(ctx, dl.letter)\n",
		dlqFull, nil,
		[]string{"none lost", "rejected messages are in the dlq"},
	},
	{
		"remembers before the answer", "internal/pipeline/attempt.go",
		"\ta.result = p.App.Forward(",
		"\tp.remember(a)\n\ta.result = p.App.Forward(",
		"", nil,
		[]string{"none lost", "rejected messages are in the dlq"},
	},
	{
		"naks without a delay", "jetstream/message.go",
		"func (m *Message) Nak(delay time.Duration) {\n",
		"func (m *Message) Nak(delay time.Duration) {\n\tdelay = time.Millisecond\n",
		"", nil,
		[]string{"retries wait"},
	},
	{
		"keeps leases of what was made anew", "jetstream/source.go",
		"\tfor _, m := range s.leases {\n\t\ts.release(m)\n\t}\n", "",
		streamAnew, nil,
		[]string{"none lost", "settled", "rejected messages are in the dlq"},
	},
	{
		"sends acks once", "jetstream/message.go",
		"\tif s.cfg.AckAsync {\n", "\tif s.cfg.AckAsync || m != nil {\n",
		ackLost,
		func(p plan) bool { return !p.Shared }, // else the others know the answer
		[]string{"a cut loses no ack", "a clean stop confirms its acks"},
	},
	{
		"drops leases on reconnect", "jetstream/source.go",
		"\t\ts.suspect, s.before = true, s.most\n",
		"\t\ts.suspect, s.before = true, s.most\n\t\tfor _, m := range s.leases {\n\t\t\ts.release(m)\n\t\t}\n",
		ackLost,
		func(p plan) bool { return !p.Shared }, // else the others know the answer
		[]string{"a cut loses no ack", "a clean stop confirms its acks"},
	},
	{
		"does not remember", "internal/pipeline/settle.go",
		"\t\tp.remember(a)\n\t\tm.Ack()\n\t\tp.settled(a, ResultAck)\n", "\t\tm.Ack()\n\t\tp.settled(a, ResultAck)\n",
		"", nil,
		[]string{"remembered"},
	},
	{
		"dead-letters in an outage", "internal/pipeline/gate.go",
		"limited(d) && g.breaker.Holds(now)", "limited(d) && false",
		appFails,
		func(p plan) bool { return p.MaxDeliver == 1 },
		[]string{"the dlq is not for outages"},
	},
	{
		"sends one request too many", "internal/app/app.go",
		"\tfor _, c := range o.Config.Consumers {\n\t\ttotal += c.InFlight()\n\t}\n",
		"\tfor i := range o.Config.Consumers {\n\t\to.Config.Consumers[i].Concurrency++\n\t\ttotal += o.Config.Consumers[i].Concurrency\n\t}\n",
		"", nil,
		[]string{"requests in flight are bounded"},
	},
	{
		"does not wait for confirmations at a stop", "internal/pipeline/pipeline.go",
		"return left + p.Source.Flush(flush)", "_ = flush\n\treturn left",
		stopCutOff,
		func(p plan) bool { return !p.Shared },
		[]string{"a clean stop confirms its acks"},
	},
	{
		"acks before the retry stream stored", "jetstream/retrymove.go",
		"\t\terr = r.publish(ctx, r.waiting(m, j.due))\n",
		"\t\tm.source.settle(m, \"+ACK\")\n\t\terr = r.publish(ctx, r.waiting(m, j.due))\n",
		dlqDenied, func(p plan) bool { return p.Crowded },
		[]string{"none lost", "rejected messages are in the dlq"},
	},
	{
		"passes the turn before the verdict", "internal/pipeline/order.go",
		"\tif o.source.Begin(ctx, m) {\n",
		"\tif o.source.Begin(ctx, m) {\n\t\to.mu.Lock()\n\t\tnext, ok := o.turns.leave(o.by(m), m)\n\t\to.mu.Unlock()\n\t\tif ok {\n\t\t\to.source.Requeue(next)\n\t\t}\n",
		"", func(p plan) bool { return p.Ordered },
		[]string{"one of a key at a time", "none overtakes"},
	},
	{
		"passes the turn when the verdict is sent", "jetstream/message.go",
		"\ts.settling[m] = struct{}{}\n", "\ts.settling[m] = struct{}{}\n\ts.passTurn(m)\n",
		ackLost, func(p plan) bool { return p.Ordered },
		[]string{"none comes again after a later one", "none overtakes"},
	},
	{
		"does not gather", "jetstream/gather.go",
		"\tif !o.gathering {\n", "\tif false {\n",
		sidecarKill, func(p plan) bool { return p.Ordered },
		[]string{"none overtakes", "none comes again after a later one"},
	},
	{
		"decides over several messages by one answer", "internal/pipeline/batchpart.go",
		"\tcase len(rest) <= 1:\n", "\tcase true:\n",
		"", inBatches,
		[]string{"dead for a reason"},
	},
	{
		"acks what unclear results do not name", "forward/batch.go",
		"\t}\n\tif doubt == \"\" {\n", "\t}\n\tif true {\n",
		"", inBatches,
		[]string{"none lost", "rejected messages are in the dlq"},
	},
}

func inBatches(p plan) bool { return p.Batch > 1 }

const (
	mutantSeeds = 4
	// mutantDuration bounds a campaign against a mutant.
	mutantDuration = 30 * time.Second
)

// runMutants runs campaigns against each mutant until a promise is broken or the seeds are used up.
func runMutants(ctx context.Context, h *house, o options, out io.Writer) (code int, err error) {
	tree, err := moduleDir(ctx)
	if err != nil {
		return exitFailed, err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	defer w.Flush()
	found, tried := 0, 0
	for _, m := range mutants {
		if !strings.Contains(m.name, o.only) {
			continue
		}
		tried++
		result, err := m.hunt(ctx, h, o, tree)
		if ctx.Err() != nil {
			return exitFailed, ctx.Err()
		}
		if err != nil {
			result = "could not be tried: " + err.Error()
			code = exitFailed
		}
		if strings.HasPrefix(result, "found") {
			found++
		}
		fmt.Fprintf(w, "%s\t%s\n", m.name, result)
		fmt.Fprintf(os.Stderr, "%s: %s\n", m.name, result)
	}
	fmt.Fprintf(w, "found\t%d of %d\n", found, tried)
	if found < tried && code == exitHeld {
		code = exitBroken
	}
	return code, nil
}

// hunt builds the mutant and says whether it was found, and by what.
func (m mutant) hunt(ctx context.Context, h *house, o options, tree string) (string, error) {
	dir, err := os.MkdirTemp(h.dir, "mutant") // goes with the house
	if err != nil {
		return "", err
	}
	overlay, err := m.overlay(tree, dir)
	if err != nil {
		return "", err
	}
	path, err := buildSidecar(ctx, dir, "-overlay", overlay)
	if err != nil {
		return "", err
	}
	others := map[string]bool{}
	for _, p := range m.plans(o) {
		r, err := runCampaign(ctx, h, p, path, o.rate)
		if err != nil {
			return "", fmt.Errorf("seed %d: %w", p.Seed, err)
		}
		for _, b := range r.breaches {
			if slices.Contains(m.want, b.rule) {
				return fmt.Sprintf("found with seed %d: %s, %d messages", p.Seed, b.rule, len(b.messages)), nil
			}
			others[b.rule] = true
		}
	}
	if len(others) > 0 {
		return fmt.Sprintf("not found in %d seeds, but something else: %v", mutantSeeds, others), nil
	}
	return fmt.Sprintf("not found in %d seeds", mutantSeeds), nil
}

// plans are the first ones, from the seed on, that have the fault that is needed.
func (m mutant) plans(o options) []plan {
	var ps []plan
	for seed := o.seed; len(ps) < mutantSeeds && seed < o.seed+1000; seed++ {
		p := newPlan(seed, min(o.duration, mutantDuration))
		needed := m.needs == "" || slices.ContainsFunc(p.Faults, func(f fault) bool { return f.Kind == m.needs })
		if needed && (m.with == nil || m.with(p)) {
			ps = append(ps, p)
		}
	}
	return ps
}

// overlay writes the broken file into dir, and what go build needs to take it in place of the one in the tree.
func (m mutant) overlay(tree, dir string) (string, error) {
	path := filepath.Join(tree, m.file)
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	if !strings.Contains(string(text), m.old) {
		return "", fmt.Errorf("%s has no such line any more", m.file)
	}
	file := filepath.Join(dir, "broken.go")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {path: file}})
	if err != nil {
		return "", err
	}
	list := filepath.Join(dir, "overlay.json")
	return list, errors.Join(
		os.WriteFile(file, []byte(strings.Replace(string(text), m.old, m.broken, 1)), 0o600), //nolint:gosec // G703: source goes to source
		os.WriteFile(list, replace, 0o600),
	)
}
