package policy

import "time"

// RetryConfig is the retry schedule: before attempt n+1 a message waits Initial × Multiplier^(n-1), at most Max,
// of which the fraction Jitter is random.
type RetryConfig struct {
	// Initial is the delay after the first failed attempt, before jitter; at least 1ms.
	Initial time.Duration `koanf:"initial"`
	// Multiplier is the factor from one delay to the next, at least 1.
	Multiplier float64 `koanf:"multiplier"`
	// Max is the longest delay of the schedule, before jitter.
	Max time.Duration `koanf:"max"`
	// Jitter is the random fraction of a delay, 0 to 1: with 0.5 a delay is between half and all of it. A delay is never below a tenth of it.
	Jitter float64 `koanf:"jitter"`
	// RetryAfterMax bounds how far the app's Retry-After can raise a delay.
	RetryAfterMax time.Duration `koanf:"retry_after_max"`
}

// StatusConfig says which HTTP statuses mean which verdict. An entry is a code (404) or a class (5xx). A nil
// list was not given by the user and stands for its default.
type StatusConfig struct {
	// Ack lists the statuses that acknowledge a message.
	Ack []string `koanf:"ack"`
	// Retry lists the statuses after which a message is delivered again later.
	Retry []string `koanf:"retry"`
	// DLQ lists the statuses that move a message to the dead letter queue.
	DLQ []string `koanf:"dlq"`
	// Drop lists the statuses that discard a message: acknowledged and counted apart.
	Drop []string `koanf:"drop"`
}

// BreakerConfig says when an app counts as failing, and how it is tried again.
type BreakerConfig struct {
	// Failures is how many different messages in a row must fail to open the breaker, 10000 at most; 0 turns it off.
	Failures int `koanf:"failures"`
	// ProbeInterval is the time from the opening to the first probe; it doubles with each probe that fails. At least 10ms.
	ProbeInterval time.Duration `koanf:"probe_interval"`
	// ProbeMax is the longest time between probes.
	ProbeMax time.Duration `koanf:"probe_max"`
	// Hold is how long an open breaker keeps messages from being dead-lettered, counted from the opening.
	Hold time.Duration `koanf:"hold"`
}
