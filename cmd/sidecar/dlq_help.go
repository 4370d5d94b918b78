package main

const (
	adminNote = `  --admin URL  use the API of the running sidecar there instead of NATS and the
             app. Its token: --token, --token-file, SIDECAR_ADMIN_TOKEN,
             SIDECAR_ADMIN_TOKEN_FILE, or admin.token of the configuration.
`
	filterNote = `
Filters; an entry must match all that are given:
  --stream DLQ_STREAM  in this DLQ stream; else in all of the configuration
  --consumer NAME      of this consumer, also of one that is not configured;
                       else of all that are
  --subject PATTERN    the original subject; * is one token, > at the end is any
  --reason WORD        rejected, max_deliver, max_age, crash_loop,
                       max_deliver_server or undeliverable
  --status CODE        HTTP status of the app's answer; "none" if there was none
  --since, --until T   stored in the DLQ since or before: a duration ago (90m,
                       24h, 7d) or an RFC 3339 time
  --seq A-B            sequence in the DLQ stream; also N, A- and -B
  --limit N            at most so many, the oldest of all DLQ streams
`
	dlqHelp = `Works on the dead letters of the configured consumers, from any machine that
reaches NATS with the same configuration.

Commands:
  list     list dead letters, the oldest first
  show     show one dead letter with its cause, headers and body
  stats    count dead letters by consumer, subject, reason and status
  replay   deliver dead letters again
  rm       remove dead letters for good

Run 'sidecar dlq COMMAND --help' for more about a command.
`
	dlqListHelp = `Writes one line for each entry as it is read, the oldest first whatever DLQ
stream it is in.
` + configNote + adminNote + filterNote + `
  --json     one JSON object a line
`
	dlqShowHelp = `SEQ is the sequence in the DLQ stream; of an entry that is stored in two
parts, that of either. It may be of a consumer that is not configured.
` + configNote + adminNote + `  --stream DLQ_STREAM  needed if the configuration has several
  --json     one JSON object, with body_base64, and body if it is UTF-8
  --raw      the bytes of the body, and nothing else
`
	dlqStatsHelp = `Counts entries, the largest groups first.
` + configNote + adminNote + filterNote + `
  --json     one JSON object
`
	dlqReplayHelp = `Makes one pass over the entries that are there when it begins, in order of
arrival whatever DLQ stream they are in, and then says what still fails and
why. With SEQ: that entry, and exits 1 if there is none.

To the app (the default) each entry is sent once, as the message was, and is
removed after an answer that means ack or drop. If it fails again, an entry
with the new cause takes its place. No other consumer of the stream is
bothered. The run ends if the app cannot be connected to.
To the stream each entry is published to its original subject, for every
consumer of it, and removed after the stream confirmed it.

Stopped or killed at any point, nothing is lost, and a second run continues.
Exits 0 only if every selected entry was replayed, here or by somebody else, or
removed meanwhile.
` + configNote + adminNote + filterNote + `
  --to app|stream    where to; app is the default
  --rate N           entries a second at most, 50; 0 is no limit
  --concurrency N    entries in work at a time, 1; 64 at most
  --max-replays N    leave entries that were replayed so often, 100; 0 is no limit
  --dry-run          list what would be replayed, and mark what would be left
  --yes              do not ask
  --json             the report as JSON
`
	dlqRemoveHelp = `Removes the entries that are there when it begins. They cannot be brought back.
With SEQ: that entry, and exits 1 if there is none. Messages in the DLQ stream
that are no dead letters stay.
Exits 0 only if every selected entry is gone.
` + configNote + adminNote + filterNote + `
  --dry-run  list what would be removed, and mark what would be left
  --yes      do not ask
  --json     the report as JSON
`
)
