package parts

import (
	"fmt"
	"log/slog"
	"reflect"
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
	file, err := config.Parse("f.yaml", []byte(text))
	require.NoError(t, err)
	l, err := config.Join(config.Defaults(), file)
	require.NoError(t, err)
	card, err := Card(&l)
	require.NoError(t, err)
	card.Temperature = nil // a function
	limits, err := Limits(&l)
	require.NoError(t, err)
	schedule := *limits.Scheduler
	limits.Scheduler = nil
	_, server, _, err := Server(&l, false, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	server.Log = nil
	return fmt.Sprintf("%+v\n%+v\n%+v\n%+v", card, limits, schedule, server)
}

// TestNoLimitIsLost: each limit, said as it is not by default, makes something that is
// not as by default. Those that others take from the options themselves are named.
func TestNoLimitIsLost(t *testing.T) {
	elsewhere := map[string]string{"rule-interval": "umbra serve tells it the card"}
	sections := map[string]reflect.Type{"limits": reflect.TypeFor[config.Limits](), "server": reflect.TypeFor[config.Server]()}
	for section, options := range map[string]map[string]string{
		"limits": {
			"guests": "4", "rule-interval": "5s", "card-timeout": "20ms", "unmap-timeout": "2s", "error-burst": "8", "error-rate": "9", "interrupt-burst": "6",
			"interrupt-pause": "7ms", "invalidate-dirs": "8", "table-rate": "2MiB",
			"request": "2s", "queued": "11", "groups": "12", "creations": "13",
			"map-aliases": "100", "map-runs": "200", "map-moves": "300",
		},
		"server": {"write-multi": "false", "max-dma-regions": "64", "max-dma-mappings": "65", "max-dma-size": "1TiB", "max-data-size": "64KiB"},
	} {
		usual := made(t, section, "")
		for _, f := range reflect.VisibleFields(sections[section]) {
			key := f.Tag.Get("yaml")
			if f.Anonymous {
				continue // its fields are there too
			}
			if section == "server" && key == "transport" {
				continue // says who makes servers, not how
			}
			value, ok := options[key]
			require.True(t, ok, "%s.%s: say another value of it above", section, key)
			got := made(t, section, key+": "+value)
			if elsewhere[key] != "" {
				require.Equal(t, usual, got, key)
				continue
			}
			require.NotEqual(t, usual, got, "%s.%s: %s changes nothing", section, key, value)
		}
	}
}
