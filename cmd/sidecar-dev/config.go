package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/jetsidecar/jetsidecar/internal/config"
)

// maxDeliver is the attempts a message gets. It and the delays are small, so that a message's whole story takes seconds.
const maxDeliver = 4

func (o options) durable() string { return strings.ToLower(o.stream) + "-worker" }

// config is the sidecar's configuration, made as its users would: by the environment. The environment of this process
// is not in it: a SIDECAR_NATS_URLS of production must not bring the sample app its messages.
func (o options) config(natsURL, appURL string) (*config.Config, error) {
	environ := []string{
		"SIDECAR_NATS_URLS=" + natsURL,
		"SIDECAR_NATS_NAME=sidecar-dev",
		"SIDECAR_CONSUMERS_0_STREAM=" + o.stream,
		"SIDECAR_CONSUMERS_0_DURABLE=" + o.durable(),
		"SIDECAR_CONSUMERS_0_MAX_DELIVER=" + strconv.Itoa(maxDeliver),
		"SIDECAR_CONSUMERS_0_RETRY_INITIAL=500ms",
		"SIDECAR_CONSUMERS_0_RETRY_MAX=5s",
		"SIDECAR_ADMIN_LISTEN=" + o.admin,
		"SIDECAR_SHUTDOWN_TIMEOUT=5s",
	}
	if o.app == "" {
		// Some sample messages never pass. When only such are left, a breaker would take that for an outage of the app.
		environ = append(environ, "SIDECAR_CONSUMERS_0_BREAKER_FAILURES=0")
	} else {
		environ = append(environ, "SIDECAR_CONSUMERS_0_BREAKER_HOLD=15s")
	}
	if appURL != "" {
		environ = append(environ, "SIDECAR_APP_URL="+appURL)
	}
	loaded, err := config.Load(config.Options{Environ: environ})
	if err != nil {
		return nil, flagFaults(err)
	}
	return &loaded.Config, nil
}

// flagFaults says by flags what is wrong with a configuration that was made of them.
func flagFaults(err error) error {
	var faults config.Faults
	if !errors.As(err, &faults) {
		return err
	}
	flags := map[string]string{
		"app.url": "--app", "admin.listen": "--admin", "consumers[0].stream": "--stream", "consumers[0].durable": "--stream",
	}
	var all []error
	said := make(map[string]bool)
	for _, f := range faults {
		name := flags[f.Key]
		switch {
		case name == "":
			all = append(all, fmt.Errorf("configure the sidecar: %s", f))
		case !said[name]:
			all = append(all, usageError(strings.TrimSpace(name+" "+f.Value)+": "+f.Why))
		}
		said[name] = true
	}
	return errors.Join(all...)
}
