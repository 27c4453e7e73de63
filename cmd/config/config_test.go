package config

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/homes"
	"pgregory.net/rapid"
)

func TestDefaultsAreValid(t *testing.T) {
	l, err := Join(Defaults())
	require.NoError(t, err)
	require.Equal(t, Size(512<<20), l.Config.Card.VRAM)
	require.True(t, l.Config.Card.MSI)
	require.Equal(t, Counts{4, 4, 3, 3}, l.Config.Card.TPCs)
}

// TestEveryOption sets each option by flag and by file to something that is not
// its default, and sees both arrive.
func TestEveryOption(t *testing.T) {
	const file = `
socket: here.sock # a comment
control: there.sock
card:
  kind: soft
  vram: 1GiB
  engines: false
  rom: my.rom
  msi: false
  temperature: 60
  tpcs: [2, 2]
  bar1: 256MiB
  bar3: 32MiB
  bar-map: [bar3, rom]
  pci-device: 06dd
  pci-subsystem: 10de:0780
server: {transport: libvfio-user, write-multi: false, max-dma-regions: 64, max-dma-mappings: 65, max-dma-size: 1TiB, max-data-size: 64KiB}
shadow: {sync: eager, scan: incremental}
scheduler:
  policy: timeslice
  depth: 3
  credit: {period: 20ms}
  band: {window: 2s, grace: 1ms}
  timeslice: {slice: 2ms}
  dfq: {slice: 4ms, factor: 6, free-run: 50ms, model: true}
  watchdog: {grace: 9s, offences: 10}
limits: {card-timeout: 20ms, unmap-timeout: 2s, error-burst: 8, error-rate: 9, table-rate: 2MiB, map-aliases: 100, map-runs: 200, map-moves: 300, request: 2s, queued: 12, creations: 14,
  guests: 4, rule-interval: 5s, interrupt-burst: 6, interrupt-pause: 7ms, invalidate-dirs: 8}
`
	want := Config{
		Socket: "here.sock", Control: "there.sock",
		Card: Card{Kind: "soft", VRAM: 1 << 30, Face: Face{
			ROM: "my.rom", Temperature: 60, TPCs: Counts{2, 2}, BAR1: 256 << 20, BAR3: 32 << 20, BARMap: homes.MapBAR3 | homes.MapROM, Device: 0x6dd, Subsystem: Subsystem{0x10de, 0x780},
		}},
		Server: Server{Transport: "libvfio-user", MaxDMARegions: 64, MaxDMAMappings: 65, MaxDMASize: 1 << 40, MaxDataSize: 64 << 10},
		Shadow: Shadow{Sync: "eager", Scan: "incremental"},
		Limits: Limits{
			Guests: 4, RuleInterval: 5 * time.Second, InterruptBurst: 6, InterruptPause: 7 * time.Millisecond, InvalidateDirs: 8,
			CardTimeout: 20 * time.Millisecond, UnmapTimeout: 2 * time.Second, ErrorBurst: 8, ErrorRate: 9, TableRate: 2 << 20, MapAliases: 100, MapRuns: 200, MapMoves: 300, QueueLimits: QueueLimits{Request: 2 * time.Second, Queued: 12, Creations: 14},
		},
		Scheduler: Scheduler{
			Policy: "timeslice", Depth: 3, Credit: Credit{20 * time.Millisecond}, Band: Band{2 * time.Second, time.Millisecond},
			Timeslice: Timeslice{2 * time.Millisecond},
			DFQ:       DFQ{4 * time.Millisecond, 6, 50 * time.Millisecond, true},
			Watchdog:  Watchdog{9 * time.Second, 10},
		},
	}
	layer, err := Parse("f.yaml", []byte(file))
	require.NoError(t, err)
	require.Len(t, layer.where, len(options(&want)), "the file above leaves options out")
	fromFile, err := Join(Defaults(), layer)
	require.NoError(t, err)
	require.Equal(t, want, fromFile.Config)

	var all []string
	for _, o := range options(&want) {
		all = append(all, o.flag)
	}
	fromFlags, err := Join(Defaults(), Flags(want, all))
	require.NoError(t, err)
	require.Equal(t, want, fromFlags.Config)
}

// TestHelpNamesTheWords: who asks what is possible is told each word that is.
func TestHelpNamesTheWords(t *testing.T) {
	n := 0
	for _, o := range options(new(Config)) {
		for word := range strings.SplitSeq(o.tag.Get("oneof"), ",") {
			require.Contains(t, strings.ToLower(o.tag.Get("help")), word, o.path)
			n++
		}
	}
	require.Greater(t, n, 15)
}

func TestFlagsOverrideFile(t *testing.T) {
	file, err := Parse("f.yaml", []byte("card: {vram: 1GiB, msi: false}\n"))
	require.NoError(t, err)
	l, err := Join(Defaults(), file, Flags(Config{Card: Card{VRAM: 2 << 30}}, []string{"vram"}))
	require.NoError(t, err)
	require.Equal(t, Size(2<<30), l.Config.Card.VRAM)
	require.False(t, l.Config.Card.MSI, "what the flags leave out is the file's")
	require.Equal(t, "--vram", l.Where("card.vram"))
	require.Equal(t, "f.yaml:1: card.msi", l.Where("card.msi"))
}

func TestFileErrors(t *testing.T) {
	for _, c := range []struct{ file, want string }{
		{"card:\n  vram: 5x\n", `f.yaml:2: card.vram: "5x" is not a size; write a whole number and a unit: 512MiB, 1GiB (KiB, MiB, GiB, TiB; B for bytes); it must be 64MiB to 6GiB`},
		{"card:\n  vram: 512\n", `f.yaml:2: card.vram: "512" is not a size; write a whole number and a unit: 512MiB, 1GiB (KiB, MiB, GiB, TiB; B for bytes); it must be 64MiB to 6GiB`},
		{"card:\n\n  vram: 100MiB\n", `f.yaml:3: card.vram: 100MiB: must be 64MiB to 6GiB, a multiple of 64MiB`},
		{"card: {vram: 16777216TiB}\n", `f.yaml:1: card.vram: "16777216TiB" is larger than 16777215TiB, the largest size there is; it must be 64MiB to 6GiB`},
		// What is out of bounds is named as it was written.
		{"limits: {table-rate: 0MiB}\n", `f.yaml:1: limits.table-rate: 0MiB: must be 1MiB to 1TiB`},
		{"limits:\n  table-rate: 2048GiB\n", `f.yaml:2: limits.table-rate: 2048GiB: must be 1MiB to 1TiB`},
		{"limits: {table-rate: -5MiB}\n", `f.yaml:1: limits.table-rate: "-5MiB" is below zero, which no size is; it must be 1MiB to 1TiB`},
		{"limits: {table-rate: 1.5GiB}\n", `f.yaml:1: limits.table-rate: "1.5GiB" is not a size; write a whole number and a unit: 512MiB, 1GiB (KiB, MiB, GiB, TiB; B for bytes); it must be 1MiB to 1TiB`},
		{"limits: {map-moves: 63}\n", `f.yaml:1: limits.map-moves: 63: must be 64 to 65536`},
		{"card: {bar-map: [bar1, bar1]}\n", `f.yaml:1: card.bar-map: bar1 is there twice; say it once`},
		{"card: {bar-map: \"[bar1\"}\n", `f.yaml:1: card.bar-map: "[bar1" cannot be mapped; say none, all, or any of bar1, bar3, pramin, rom`},
		{"card: {bar1: 96MiB}\n", `f.yaml:1: card.bar1: 96MiB: must be 16MiB to 8GiB, a power of two`},
		{"card: {temperature: -1}\n", `f.yaml:1: card.temperature: -1: must be 0 to 127`},
		{"card: {temperature: warm}\n", `f.yaml:1: card.temperature: "warm" is not a whole number; it must be 0 to 127`},
		{"card: {tpcs: [4, x]}\n", `f.yaml:1: card.tpcs: "4,x" is not a list of numbers; write them with commas: 4,4,3,3`},
		{"card: {msi: yes}\n", `f.yaml:1: card.msi: "yes" is neither true nor false`},
		{"card: {kind: hard}\n", `f.yaml:1: card.kind: hard: must be soft`},
		{"scheduler: {watchdog: {grace: 9}}\n", `f.yaml:1: scheduler.watchdog.grace: "9" is not a time, it has no unit; write 9ms, 9us or 9s; it must be 1us to 10m`},
		{"card: {pci-device: 6d8}\n", `f.yaml:1: card.pci-device: "6d8" is not a PCI id; write four hexadecimal digits: 06d8`},
		{"card: {pci-subsystem: 076f}\n", `f.yaml:1: card.pci-subsystem: "076f" is not a PCI subsystem; write the ids of vendor and board: 10de:076f`},
		{"socket: [a, b]\n", `f.yaml:1: socket: [a, b]: one value is wanted here, such as PATH`},
		{"socket:\n", `f.yaml:1: socket: has no value; give one or remove the line`},
		{"card: soft\n", `f.yaml:1: card: soft: not a mapping; write keys and values: kind, vram, engines, rom, msi, temperature, tpcs, bar1, bar3, bar-map, doorbell, pci-device, pci-subsystem`},
		{"# nothing\n\nsokcet: x\n", `f.yaml:3: sokcet: unknown key; did you mean "socket"? There are socket, control, card, server, shadow, limits, scheduler, profiles, gpus`},
		{"card:\n  vramm: 1GiB\n", `f.yaml:2: card.vramm: unknown key; did you mean "vram"? There are kind, vram, engines, rom, msi, temperature, tpcs, bar1, bar3, bar-map, doorbell, pci-device, pci-subsystem`},
		// A key that belongs elsewhere, by its name, its flag, or the end of its path.
		{"map-pages: 5000\n", `f.yaml:1: map-pages: unknown key; did you mean "limits.map-pages"? Write limits: {map-pages: 5000}`},
		{"card:\n  max_dma_size: 1TiB\n", `f.yaml:2: card.max_dma_size: unknown key; did you mean "server.max-dma-size"? At the top level write server: {max-dma-size: 1TiB}`},
		{"limits: {shadow-sync: lazy}\n", `f.yaml:1: limits.shadow-sync: unknown key; did you mean "shadow.sync"? At the top level write shadow: {sync: lazy}`},
		{"sched-policy: band\n", `f.yaml:1: sched-policy: unknown key; did you mean "scheduler.policy"? Write scheduler: {policy: band}`},
		{"limits.table-rate: 1GiB\n", `f.yaml:1: limits.table-rate: unknown key; did you mean "limits.table-rate"? Write limits: {table-rate: 1GiB}`},
		{"credit: {period: 5ms}\n", `f.yaml:1: credit: unknown key; did you mean "scheduler.credit"? Write scheduler: {credit: {period: 5ms}}`},
		{"period: 5ms\n", `f.yaml:1: period: unknown key; did you mean "scheduler.credit.period"? Write scheduler: {credit: {period: 5ms}}`},
		{"grace: 5ms\n", `f.yaml:1: grace: unknown key; did you mean scheduler.band.grace or scheduler.watchdog.grace?`},
		{"bar-map: bar1,bar3\n", `f.yaml:1: bar-map: unknown key; did you mean "card.bar-map"? Write card: {bar-map: [bar1,bar3]}`},
		{"tablerate: 1GiB\n", `f.yaml:1: tablerate: unknown key; did you mean "limits.table-rate"? Write limits: {table-rate: 1GiB}`},
		{"map-pages:\n", `f.yaml:1: map-pages: unknown key; did you mean "limits.map-pages"? Write limits: {map-pages: ...}`},
		{"weight: 5\n", `f.yaml:1: weight: is a virtual GPU's; write it in an element of gpus, or of profiles`},
		{"gpus:\n- {name: a, map-pages: 5000}\n", `f.yaml:2: gpus[0].map-pages: is the server's, not a GPU's; did you mean "limits.map-pages"? At the top level write limits: {map-pages: 5000}`},
		{"profiles: [{name: a, socket: a.sock}]\n", `f.yaml:1: profiles[0].socket: a profile has no socket; give it to each GPU, in its element of gpus`},
		{"profiles: [{name: a, profile: b}]\n", `f.yaml:1: profiles[0].profile: a profile has no profile; give it to each GPU, in its element of gpus`},
		{"profiles: [{name: a, sync: flush}]\n", `f.yaml:1: profiles[0].sync: unknown key; did you mean "shadow.sync"? In a GPU or profile write shadow: {sync: flush}`},
		// A section, and what only looks like one of a GPU's.
		{"card: {shadow: {scan: full}}\n", `f.yaml:1: card.shadow: unknown key; did you mean "shadow"? At the top level write shadow: {scan: full}`},
		{"card:\n  limits:\n    map-runs: 300\n    request: 5s\n", `f.yaml:2: card.limits: unknown key; did you mean "limits"? At the top level write limits: {map-runs: 300, request: 5s}`},
		{"card: {shadow: full}\n", `f.yaml:1: card.shadow: unknown key; did you mean "shadow"? At the top level write shadow: {...}`},
		{"server:\n  gpus:\n  - name: a\n    tpcs: [4, 4]\n", `f.yaml:2: server.gpus: unknown key; did you mean "gpus"? At the top level write gpus: [{name: a, tpcs: [4, 4]}]`},
		{"gpus: [{scheduler: {policy: band}}]\n", `f.yaml:1: gpus[0].scheduler: is the server's, not a GPU's; did you mean "scheduler"? At the top level write scheduler: {policy: band}`},
		{"gpus: [{shadow: {limits: {request: 5s}}}]\n", `f.yaml:1: gpus[0].shadow.limits: unknown key; did you mean "limits"? In a GPU or profile write limits: {request: 5s}`},
		{"gpus: [{shadow: {limits: {map-runs: 300}}}]\n", `f.yaml:1: gpus[0].shadow.limits: is the server's, not a GPU's; did you mean "limits"? At the top level write limits: {map-runs: 300}`},
		{"profiles: [{name: p, shadow: {socket: a.sock}}]\n", `f.yaml:1: profiles[0].shadow.socket: unknown key; did you mean "socket"? In a GPU write socket: a.sock`},
		// A value is shown so that YAML reads it as it was.
		{"write-multi: '# x'\n", `f.yaml:1: write-multi: unknown key; did you mean "server.write-multi"? Write server: {write-multi: "# x"}`},
		{"rom: 'a: b'\n", `f.yaml:1: rom: unknown key; did you mean "card.rom"? Write card: {rom: "a: b"}`},
		{"rom: a,b\n", `f.yaml:1: rom: unknown key; did you mean "card.rom"? Write card: {rom: "a,b"}`},
		{"tpcs:\n- 4\n- 3\n", `f.yaml:1: tpcs: unknown key; did you mean "card.tpcs"? Write card: {tpcs: [4, 3]}`},
		{"rom: |\n  a\n  b\n", `f.yaml:1: rom: unknown key; did you mean "card.rom"? Write card: {rom: ...}`},
		{"rom: " + strings.Repeat("x", 100) + "\n", `f.yaml:1: rom: unknown key; did you mean "card.rom"? Write card: {rom: ...}`},
		{"nothing-like-it: 1\n", `f.yaml:1: nothing-like-it: unknown key; there are socket, control, card, server, shadow, limits, scheduler, profiles, gpus`},
		{"- socket\n", `f.yaml:1: - socket: not a mapping; write keys and values: socket, control, card, server, shadow, limits, scheduler, profiles, gpus`},
		{"socket: a\n---\nsocket: b\n", `f.yaml:3: a second document; put everything into one`},
	} {
		l, err := Parse("f.yaml", []byte(c.file))
		if err == nil {
			_, err = Join(Defaults(), l)
		}
		require.EqualError(t, err, c.want, "%s", c.file)
		require.IsType(t, new(Error), err)
	}
}

func TestSyntaxErrorsNameTheLine(t *testing.T) {
	for _, file := range []string{"socket: a\ncard: {vram: 1GiB\n", "socket: a\nsocket: b\n", "socket: a\n\tcard: x\n"} {
		_, err := Parse("f.yaml", []byte(file))
		require.ErrorContains(t, err, "f.yaml:2: ", "%s", file)
	}
}

func TestEmptyFileSaysNothing(t *testing.T) {
	for _, file := range []string{"", "\n", "# only a comment\n", "---\n"} {
		l, err := Parse("f.yaml", []byte(file))
		require.NoError(t, err, "%q", file)
		require.Empty(t, l.where)
	}
}

func TestSizeRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Size(rapid.Uint64().Draw(t, "n") << rapid.IntRange(0, 50).Draw(t, "shift"))
		var got Size
		require.NoError(t, got.UnmarshalText([]byte(want.String())))
		require.Equal(t, want, got)
	})
}

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"vram", "vram", 0}, {"vramm", "vram", 1}, {"ram", "vram", 1}, {"vrom", "vram", 1}, {"kitten", "sitting", 3}} {
		require.Equal(t, c.want, distance(c.a, c.b), "%s %s", c.a, c.b)
		require.Equal(t, c.want, distance(c.b, c.a), "%s %s", c.b, c.a)
	}
}

// FuzzParse: any file is read or refused, never a panic, and what is read can be
// joined or is refused with the option named.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"", "socket: a\ncard: {vram: 1GiB, tpcs: [1, 2]}\n", "card: [", "&a card: *a\n", "<<: {socket: x}\n", "? [a]\n: b\n",
		"profiles: [{name: p, vram: 64MiB}]\ngpus: [{name: a, socket: a, profile: p}, {name: b, socket: b, vram: 64MiB, channels: 3, tpcs: [1]}]\n",
		"gpus: [1]\n", "gpus: {a: b}\n", "gpus: [{name: a, gpus: []}]\n", "card: !!str x\n", "a: &a [*a]\n", "socket: |\n  x\n  y\n", "card:\n  vram: 1\n---\n", "\xff\xfe", "socket: \"\\x00\"\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		l, err := Parse("f.yaml", data)
		if err != nil {
			return
		}
		if _, err := Join(Defaults(), l); err != nil {
			require.IsType(t, new(Error), err)
		}
	})
}

// TestFilesThatAreNone: what is no configuration file is named, and not read to its
// end, if it has one.
func TestFilesThatAreNone(t *testing.T) {
	folder := t.TempDir()
	for name, want := range map[string]string{
		"/dev/zero":        "--config: /dev/zero: more than 1048576 bytes, too large for a configuration file; give one of YAML",
		folder:             "--config: " + folder + ": is a directory",
		folder + "/f.yaml": "--config: " + folder + "/f.yaml: no such file or directory",
	} {
		_, err := File(name)
		require.EqualError(t, err, want)
		require.IsType(t, new(Error), err)
	}
}

// TestAdviceIsTaken: wherever a key of the configuration is written under its flag's name, or
// with other signs, the file is refused with the place where it belongs, and what is shown there
// is taken.
func TestAdviceIsTaken(t *testing.T) {
	advised := 0
	for _, o := range options(new(Config)) {
		value := o.tag.Get("def")
		if value == "" {
			value = "x"
		}
		for _, key := range []string{o.flag, strings.ReplaceAll(o.flag, "-", "_"), o.path} {
			if slices.Contains(keys(reflect.TypeFor[Config]()), key) {
				continue
			}
			for _, file := range []string{fmt.Sprintf("%s: %q\n", key, value), fmt.Sprintf("shadow:\n  %s: %q\n", key, value)} {
				_, err := Parse("f.yaml", []byte(file))
				if err == nil { // its own name, where it belongs
					continue
				}
				_, advice, ok := strings.Cut(err.Error(), fmt.Sprintf("did you mean %q? ", o.path))
				require.True(t, ok, "%s%v", file, err)
				_, advice, _ = strings.Cut(advice, "rite ")
				l, err := Parse("f.yaml", []byte(advice))
				require.NoError(t, err, advice)
				require.Equal(t, "f.yaml:1: "+o.path, l.Where(o.path))
				advised++
			}
		}
	}
	require.Greater(t, advised, 200)
}

// TestAdviceKeepsTheValue: whatever value stands at a wrong place, what is shown for the right
// one is read as that value there, or refused as it would be.
func TestAdviceKeepsTheValue(t *testing.T) {
	all := slices.DeleteFunc(options(new(Config)), func(o option) bool { return !strings.Contains(o.path, ".") })
	for _, o := range all {
		for _, value := range []string{
			"# x", "a: b", "a #b", "", "~", "null", "NULL", "true", "0x1f", "1_000", "1e3", ".inf", ".nan", "-1", "-", "---", "...", "<<", "a:", ":a", "10de:076f",
			"[4, 4]", "bar1,bar3", "bar1, bar3", "4,4", "4, x", "a,b", "300us", "1GiB", "50%", "a\nb", "a\tb", "\x01", "é\u2028", "a}", "{a",
		} {
			advised(t, &o, "", value)
		}
	}
	values := rapid.StringOfN(rapid.RuneFrom([]rune("ab19:#,[]{}\"'\\ -&*!|>%@`~.?=+é")), 0, 12, -1)
	rapid.Check(t, func(t *rapid.T) {
		o, section := rapid.SampledFrom(all).Draw(t, "option"), rapid.SampledFrom([]string{"", "card", "limits"}).Draw(t, "section")
		advised(t, &o, section, values.Draw(t, "value"))
	})
}

// advised writes an option by its path where that is no key, and takes the advice.
func advised(t require.TestingT, o *option, section, value string) {
	file := fmt.Sprintf("%s: %s\n", o.path, strconv.Quote(value))
	if section != "" {
		file = section + ": {" + strings.TrimSpace(file) + "}\n"
	}
	_, err := Parse("f.yaml", []byte(file))
	_, advice, ok := strings.Cut(err.Error(), fmt.Sprintf("did you mean %q? ", o.path))
	require.True(t, ok, "%s%v", file, err)
	_, advice, _ = strings.Cut(advice, "rite ")

	var want Config
	all := options(&want)
	here := &all[slices.IndexFunc(all, func(p option) bool { return p.path == o.path })]
	l, err := Parse("f.yaml", []byte(advice))
	if _, bad := here.take(value); bad != nil {
		require.ErrorContains(t, err, "f.yaml:1: "+o.path+": ", advice)
		return
	}
	require.NoError(t, err, advice)
	require.Equal(t, want, l.Config, advice)
	require.Equal(t, "f.yaml:1: "+o.path, l.Where(o.path))
}
