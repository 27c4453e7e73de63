package serve

import (
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/config"
)

// made is everything that a file with this section describes, as text.
func made(t *testing.T, section, options string) string {
	t.Helper()
	const rest = "scheduler: {policy: credit}\ncard: {vram: 1GiB}\ngpus:\n- {name: a, socket: a.sock, vram: 64MiB}\n"
	text := rest
	if options != "" {
		text += section + ": {" + options + "}\n"
	}
	l := config.Default()
	require.NoError(t, l.Parse("f.yaml", []byte(text)))
	require.NoError(t, l.Check())
	p, err := NewPlan(l, false, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	p.card.Temperature, p.options.Log = nil, nil // pointers
	schedule := *p.limits.Scheduler
	p.limits.Scheduler = nil
	return fmt.Sprintf("%+v\n%+v\n%+v\n%+v\n%+v", p.card, p.limits, p.driver, schedule, p.options)
}

// TestNoLimitIsLost: each limit that differs from its default changes what is made.
func TestNoLimitIsLost(t *testing.T) {
	sections := map[string]reflect.Type{"limits": reflect.TypeFor[config.Limits](), "server": reflect.TypeFor[config.Server]()}
	for section, options := range map[string]map[string]string{
		"limits": {
			"guests": "4", "card-timeout": "20ms", "error-rate": "9", "table-rate": "2MiB",
			"map-aliases": "100", "map-runs": "200", "request": "2s", "queued": "11", "creations": "13",
		},
		"server": {"write-multi": "false", "max-dma-mappings": "65", "max-dma-regions": "66", "max-dma-memory": "512GiB", "max-dma-alloc": "7MiB", "dma-any-file": "true"},
	} {
		usual := made(t, section, "")
		for _, f := range reflect.VisibleFields(sections[section]) {
			key := f.Tag.Get("yaml")
			if f.Anonymous {
				continue // its fields are there too
			}
			if section == "server" && (key == "transport" || key == "inject" || strings.HasPrefix(key, "sandbox")) {
				continue // says who makes servers, what the process may do, or is for requests
			}
			value, ok := options[key]
			require.True(t, ok, "%s.%s: say another value of it above", section, key)
			got := made(t, section, key+": "+value)
			require.NotEqual(t, usual, got, "%s.%s: %s changes nothing", section, key, value)
		}
	}
}
