package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

const (
	// pullAhead is how many messages the loop keeps asked for: the client library's own default.
	pullAhead = 500
	// retryAfter is how long a message waits that the app did not take: the sidecar's first delay, before jitter.
	retryAfter = time.Second
	// postLimit is the sidecar's default app.timeout.
	postLimit = 30 * time.Second
)

// client is the HTTP client of the loop and of Watermill: with as many idle connections as there are requests in flight, or
// as it comes, which is two.
func client(transport string, concurrency int) *http.Client {
	if transport == "default" {
		return &http.Client{Timeout: postLimit}
	}
	return &http.Client{Timeout: postLimit, Transport: &http.Transport{MaxIdleConnsPerHost: concurrency, MaxConnsPerHost: concurrency}}
}

// post brings a body to the app, and reports whether it was taken.
func post(ctx context.Context, c *http.Client, url string, body []byte) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return false
	}
	req.Header.Set("Content-Type", "application/octet-stream")
	resp, err := c.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode/100 == 2
}

// durable connects to the one to be served.
func durable(ctx context.Context, r *role) (*nats.Conn, natsjs.Consumer, error) {
	nc, err := nats.Connect(r.text("nats"))
	if err != nil {
		return nil, nil, err
	}
	js, err := natsjs.New(nc)
	if err != nil {
		return nil, nil, err
	}
	c, err := js.Consumer(ctx, r.text("stream"), r.text("durable"))
	return nc, c, err
}

// playLoop is what one writes by hand: consume, a goroutine a message, POST, ack. It promises little: no keep-alive of
// leases, no dead letters, no confirmed acks, no stop that waits.
func playLoop(ctx context.Context, r *role) error {
	return consume(ctx, r, pullAhead, func(c *http.Client, m natsjs.Msg) {
		if post(ctx, c, r.text("app"), m.Data()) {
			_ = m.Ack()
		} else {
			_ = m.NakWithDelay(retryAfter)
		}
	})
}

// playAck is a ceiling: consume and ack, without an app.
func playAck(ctx context.Context, r *role) error {
	return consume(ctx, r, pullAhead, nil)
}

// consume hands each message to a goroutine, as many at a time as wanted; without a handler it acks them itself.
func consume(ctx context.Context, r *role, ahead int, handle func(*http.Client, natsjs.Msg)) error {
	nc, consumer, err := durable(ctx, r)
	if err != nil {
		return err
	}
	defer nc.Close()
	c := client(r.text("transport"), r.number("concurrency"))
	slots := make(chan struct{}, r.number("concurrency"))
	consuming, err := consumer.Consume(func(m natsjs.Msg) {
		if handle == nil {
			_ = m.Ack()
			return
		}
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			handle(c, m)
		}()
	}, natsjs.PullMaxMessages(ahead))
	if err != nil {
		return err
	}
	defer consuming.Stop()
	if err := r.ready(""); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// playPost is a ceiling: the HTTP client alone, without NATS. It posts so many bodies once it is told to begin.
func playPost(ctx context.Context, r *role) error {
	body := make([]byte, r.number("size"))
	c := client(r.text("transport"), r.number("concurrency"))
	if err := r.ready(""); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case <-r.begun:
	}
	bodies := make(chan []byte, r.number("concurrency"))
	var posting sync.WaitGroup
	for range r.number("concurrency") {
		posting.Go(func() {
			for body := range bodies {
				for !post(ctx, c, r.text("app"), body) && ctx.Err() == nil { // what failed is posted again
				}
			}
		})
	}
	for range r.number("messages") {
		bodies <- body
	}
	close(bodies)
	posting.Wait()
	<-ctx.Done()
	return nil
}
