package config

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card/homes"
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"pgregory.net/rapid"
)

func join(t *testing.T, file string, flags ...string) (Layer, error) {
	t.Helper()
	l, err := Parse("f.yaml", []byte(file))
	if err != nil {
		return l, err
	}
	var c Config
	for _, text := range flags {
		g, err := ParseGPU("--gpu", text)
		if err != nil {
			return l, err
		}
		c.GPUs = append(c.GPUs, g)
	}
	return Join(Defaults(), l, Flags(c, nil))
}

// TestGPUs: what a GPU does not say, its profile says, else the card, else the
// default; and every key can be said.
func TestGPUs(t *testing.T) {
	l, err := join(t, `
card: {vram: 2GiB, tpcs: [2, 2], temperature: 70}
shadow: {scan: full}
scheduler: {policy: credit}
profiles:
  - {name: small, vram: 128MiB, channels: 8, weight: 50, cap: 80, msi: false, shadow: {sync: flush}, limits: {request: 0s}}
gpus:
  - {name: a, socket: a.sock, vram: 512MiB}
  - name: b
    socket: b.sock
    profile: small
    temperature: 30
  - {name: c, socket: c.sock, vram: 65MiB, channels: 9, guaranteed: 2, tables: 1MiB, weight: 10000, cap: 100, priority: 7, limits: {request: 3s, queued: 4}, processes: {group: channel}, rom: x.rom, msi: true, temperature: 1,
     tpcs: [1, 1], bar1: 16MiB, bar3: 16MiB, bar-map: bar1, pci-device: 06dd, pci-subsystem: "1028:0001", profile: small,
     shadow: {sync: eager, scan: incremental}}
`, "name=d,socket=d.sock,vram=64MiB,tpcs=4,4,bar-map=rom,pramin,msi=false")
	require.NoError(t, err)
	card := Face{MSI: true, Temperature: 70, TPCs: Counts{2, 2}, BAR1: 128 << 20, BAR3: 64 << 20, BARMap: homes.MapAll, Device: 0x6d8, Subsystem: Subsystem{0x10de, 0x76f}}
	var got []GPU
	var shadows []Shadow
	for _, g := range l.Config.GPUs {
		g.entry = entry{}
		shadows = append(shadows, g.Shadow)
		g.Shadow = Shadow{}
		got = append(got, g)
	}
	small, warm := card, card
	small.MSI, small.Temperature = false, 30
	warm.MSI, warm.TPCs, warm.BARMap = false, Counts{4, 4}, homes.MapROM|homes.MapPRAMIN
	usual := Processes{Group: "space"}
	require.Equal(t, []GPU{
		{Name: "a", Socket: "a.sock", Share: Share{512 << 20, 32, 32, 64 << 20}, CardTime: CardTime{Weight: 100, Processes: usual}, Face: card},
		{Name: "b", Socket: "b.sock", Profile: "small", Share: Share{128 << 20, 8, 8, 16 << 20}, CardTime: CardTime{50, 80, 0, GuestLimits{Request: RequestLimit(sched.Forever)}, usual}, Face: small},
		{Name: "c", Socket: "c.sock", Profile: "small", Share: Share{65 << 20, 9, 2, 1 << 20}, CardTime: CardTime{10000, 100, 7, GuestLimits{RequestLimit(3 * time.Second), 4}, Processes{"channel"}}, Face: Face{
			ROM: "x.rom", MSI: true, Temperature: 1, TPCs: Counts{1, 1}, BAR1: 16 << 20, BAR3: 16 << 20, BARMap: homes.MapBAR1, Device: 0x6dd, Subsystem: Subsystem{0x1028, 1},
		}},
		{Name: "d", Socket: "d.sock", Share: Share{64 << 20, 32, 32, 8 << 20}, CardTime: CardTime{Weight: 100, Processes: usual}, Face: warm},
	}, got)
	lazy := Shadow{Sync: "lazy", Scan: "full"} // the file's
	require.Equal(t, []Shadow{lazy, {Sync: "flush", Scan: "full"}, {Sync: "eager", Scan: "incremental"}, lazy}, shadows)
	all := l.Config.GPUs[2].given
	require.Len(t, all, len(options(new(GPU))), "the file above leaves keys out")
}

func TestGPUErrors(t *testing.T) {
	const a = "gpus:\n- {name: a, socket: a.sock, vram: 128MiB}\n"
	many := "card: {vram: 6GiB}\ngpus:\n"
	for i := range aggregator.MaxGuests + 1 {
		many += fmt.Sprintf("- {name: g%d, socket: %d.sock, vram: 64MiB}\n", i, i)
	}
	for _, c := range []struct{ file, want string }{
		{a + "- {name: b, socket: b.sock, vram: 512MiB}\n", `f.yaml:3: gpus[1].vram: 512MiB: does not fit: with 64MiB for its page tables it takes 576MiB, and the card has 360MiB left: of its 512MiB the aggregator keeps 8MiB, and other GPUs have 144MiB; 320MiB or less fits, or start the server with a larger card (card.vram in the file, or --vram)`},
		{"card: {vram: 64MiB}\n" + a, `f.yaml:3: gpus[0].vram: 128MiB: does not fit: with 16MiB for its page tables it takes 144MiB, and the card has 56MiB left: of its 64MiB the aggregator keeps 8MiB; no GPU fits, so start the server with a larger card (f.yaml:1: card.vram, or --vram)`},
		{"gpus:\n- name: a\n  socket: a.sock\n  vram: 64MiB\n  tables: 1000MiB\n", `f.yaml:5: gpus[0].tables: 1000MiB: does not fit: with 64MiB of vram it takes 1064MiB, and the card has 504MiB left: of its 512MiB the aggregator keeps 8MiB; 440MiB or less fits, or start the server with a larger card (card.vram in the file, or --vram)`},
		{a + "- {name: b, socket: b.sock, vram: 400MiB, tables: 500MiB}\n", `f.yaml:3: gpus[1].tables: 500MiB: does not fit: with 400MiB of vram it takes 900MiB, and the card has 360MiB left: of its 512MiB the aggregator keeps 8MiB, and other GPUs have 144MiB; without tables vram=320MiB or less fits, or start the server with a larger card (card.vram in the file, or --vram)`},
		{a + "- {name: a, socket: b.sock, vram: 64MiB}\n", `f.yaml:3: gpus[1].name: a: is there twice, first at f.yaml:2: gpus[0].name; give each GPU a name of its own`},
		{a + "- {name: b, socket: ./a.sock, vram: 64MiB}\n", `f.yaml:3: gpus[1].socket: ./a.sock: is there twice, first at f.yaml:2: gpus[0].socket; give each a path of its own`},
		{"socket: ./a.sock\ncontrol: a.sock\n", `f.yaml:2: control: a.sock: is there twice, first at f.yaml:1: socket; give each a path of its own`},
		{"colour: red\n", `f.yaml:1: colour: unknown key; there are socket, control, card, server, shadow, limits, scheduler, profiles, gpus`},
		{"control: a.sock\n" + a, `f.yaml:3: gpus[0].socket: a.sock: is there twice, first at f.yaml:1: control; give each a path of its own`},
		{"socket: c.sock\n" + a, `f.yaml:1: socket: c.sock: gives the whole card to one guest, and f.yaml:3: gpus[0] shares it; remove one of them`},
		{"gpus:\n- {name: a, socket: a.sock, vram: 64MiB, shadow: {sync: often}}\n", `f.yaml:2: gpus[0].shadow.sync: often: must be eager or flush or lazy`},
		{"gpus:\n- {name: a, socket: a.sock, vram: 64MiB, shadow: {when: often}}\n", `f.yaml:2: gpus[0].shadow.when: unknown key; there are sync, scan`},
		{many, `f.yaml:35: gpus[32]: is GPU 33; a card is shared by at most 32 (default of limits.guests)`},
		{"limits: {guests: 1}\n" + a + "- {name: b, socket: b.sock, vram: 64MiB}\n", `f.yaml:4: gpus[1]: is GPU 2; a card is shared by at most 1 (f.yaml:1: limits.guests)`},
		{"gpus:\n- {socket: a.sock, vram: 128MiB}\n", `f.yaml:2: gpus[0].name: missing; everything else is called by it`},
		{"gpus:\n- {name: a/b, socket: a.sock, vram: 128MiB}\n", `f.yaml:2: gpus[0].name: a/b: may have letters, digits and . _ -, begins with a letter or digit, and has at most 64 of them`},
		{"gpus:\n- {name: a, vram: 128MiB}\n", `f.yaml:2: gpus[0].socket: missing; say where QEMU shall attach, for example a.sock`},
		{"gpus:\n- {name: a, socket: a.sock}\n", `f.yaml:2: gpus[0].vram: missing; say how much of the card's memory it gets, for example 256MiB`},
		{"gpus:\n- name: a\n  socket: a.sock\n  vram: 1MiB\n", `f.yaml:4: gpus[0].vram: 1MiB: must be 64MiB to 6GiB, a multiple of 1MiB`},
		{"gpus:\n- name: a\n  socket: a.sock\n  vrma: 64MiB\n", `f.yaml:4: gpus[0].vrma: unknown key; did you mean "vram"? There are name, socket, profile, vram, channels, guaranteed, tables, weight, cap, priority, limits, processes, shadow, rom, msi, temperature, tpcs, bar1, bar3, bar-map, pci-device, pci-subsystem`},
		{"gpus:\n- {name: a, socket: a.sock, vram: 64MiB, bar-map: [bar1, bar2]}\n", `f.yaml:2: gpus[0].bar-map: "bar2" cannot be mapped; say none, all, or any of bar1, bar3, pramin, rom`},
		{"gpus:\n- {name: a, socket: a.sock, vram: 64MiB, bar-map: bar1,bar3}\n", `f.yaml:2: gpus[0].bar3: has no value; if it belongs to gpus[0].bar-map, write that in brackets: bar-map: [bar1, bar3]`},
		{"gpus:\n- {name: a, bar-map: bar1,pramin,rom, socket: a.sock}\n", `f.yaml:2: gpus[0].pramin: has no value; if it belongs to gpus[0].bar-map, write that in brackets: bar-map: [bar1, pramin, rom]`},
		{"card: {tpcs: 4,4}\n", `f.yaml:1: card.4: has no value; if it belongs to card.tpcs, write that in brackets: tpcs: [4, 4]`},
		{"gpus:\n- {name: a, bar-map: bar1, socket: a.sock, bar3}\n", `f.yaml:2: gpus[0].bar3: has no value; give one or remove the line`},
		{"gpus:\n- name: a\n  bar-map: bar1\n  bar3:\n", `f.yaml:4: gpus[0].bar3: has no value; give one or remove the line`},
		{"gpus:\n- {name: a, socket: a.sock, vram: 64MiB, bar-map: [bar1, none]}\n", `f.yaml:2: gpus[0].bar-map: none and all stand alone; say one of them, or any of bar1, bar3, pramin, rom`},
		{"gpus:\n- {name: a, socket: a.sock, vram: 64MiB, channels: 0}\n", `f.yaml:2: gpus[0].channels: 0: must be 1 to 128`},
		{"gpus:\n- {name: a, socket: a.sock, vram: 64MiB, channels: 100}\n- {name: b, socket: b.sock, vram: 64MiB, channels: 29}\n", `f.yaml:3: gpus[1].channels: 29: does not fit: the card has 128, and 28 are left for it: a 100; give the others fewer: channels, or guaranteed; of 2 GPUs each can have channels=64`},
		{"gpus:\n- {name: a, socket: a.sock, vram: 64MiB, channels: 1}\n- {name: b, socket: b.sock, vram: 64MiB, channels: 128}\n", `f.yaml:3: gpus[1].channels: 128: does not fit: the card has 128, and 127 are left for it: a 1; ask for channels=127 or less, for each other GPU needs one; give the others fewer: channels, or guaranteed; of 2 GPUs each can have channels=64`},
		{"gpus:\n- {name: a, socket: a.sock, vram: 64MiB, channels: 128}\n- {name: b, socket: b.sock, vram: 64MiB}\n", `f.yaml:3: gpus[1].channels: the card has 128, and the other GPUs take all: a 128; give the others fewer: channels, or guaranteed; of 2 GPUs each can have channels=64`},
		{"gpus:\n- {name: a, socket: a.sock, vram: 64MiB, channels: 128, guaranteed: 100}\n- {name: b, socket: b.sock, vram: 64MiB, guaranteed: 29}\n", `f.yaml:3: gpus[1].guaranteed: 29: does not fit: the card has 128, and 28 are left for it: a 100; give the others fewer: channels, or guaranteed; of 2 GPUs each can have channels=64`},
		{"gpus:\n- {name: a, socket: a.sock, vram: 64MiB, channels: 8, guaranteed: 9}\n", `f.yaml:2: gpus[0].guaranteed: 9: more than the 8 that it may have at a time (f.yaml:2: gpus[0].channels)`},
		{"gpus:\n- {name: a, socket: a.sock, profile: big}\n", `f.yaml:2: gpus[0].profile: big: there are no profiles`},
		{"profiles: [{name: small, vram: 64MiB}]\ngpus:\n- {name: a, socket: a.sock, profile: smal}\n", `f.yaml:3: gpus[0].profile: smal: no such profile; did you mean "small"? There are small`},
		{"profiles:\n- {name: p, vram: 64MiB}\n- {name: p, vram: 65MiB}\n", `f.yaml:3: profiles[1].name: p: is there twice, first at f.yaml:2: profiles[0].name`},
		{"profiles:\n- {name: p, vram: 1MiB}\n", `f.yaml:2: profiles[0].vram: 1MiB: must be 64MiB to 6GiB, a multiple of 1MiB`},
		{"gpus: a\n", `f.yaml:1: gpus: a: not a list; begin each element with a dash: - {name, socket, profile, vram, channels, guaranteed, tables, weight, cap, priority, limits, processes, shadow, rom, msi, temperature, tpcs, bar1, bar3, bar-map, pci-device, pci-subsystem}`},
		{"gpus: [a]\n", `f.yaml:1: gpus[0]: a: not a mapping; write keys and values: name, socket, profile, vram, channels, guaranteed, tables, weight, cap, priority, limits, processes, shadow, rom, msi, temperature, tpcs, bar1, bar3, bar-map, pci-device, pci-subsystem`},
	} {
		_, err := join(t, c.file)
		require.EqualError(t, err, c.want, "%s", c.file)
		require.IsType(t, new(Error), err)
	}
	_, err := join(t, "", "name=a,socket=a.sock,vram=64MiB", "name=a,socket=b.sock,vram=64MiB")
	require.EqualError(t, err, `--gpu name=a: name: a: two --gpu have this name; give each GPU a name of its own`)
	for _, c := range []struct{ flag, want string }{
		{"a", `--gpu: a: not keys and values; write name=a,socket=a.sock,vram=256MiB`},
		{"name=a,socket=a.sock", `--gpu name=a: vram: missing; say how much of the card's memory it gets, for example 256MiB`},
		{"name=a,socket=a.sock,vram=5x", `--gpu name=a: vram: "5x" is not a size; write a whole number and a unit: 512MiB, 1GiB (KiB, MiB, GiB, TiB; B for bytes); it must be 64MiB to 6GiB`},
		{"name=a,vram=", `--gpu name=a: vram: has no value; give one or leave it out`},
		{"name=a,bar-map=bar3,bar3", `--gpu name=a: bar-map: bar3 is there twice; say it once`},
		{"name=a,vram=65536KiB,channels=0x10", `--gpu name=a: channels: "0x10" is not a whole number; it must be 1 to 128`},
		{"name=a,vram=0MiB", `--gpu name=a: vram: 0MiB: must be 64MiB to 6GiB, a multiple of 1MiB`},
		{" name = a , sokcet = x", `--gpu name=a: sokcet: unknown key; did you mean "socket"? There are bar-map, `},
		{"name=a,name=b", `--gpu: name=a,name=b: name is there twice`},
		{"name=a,sync=flush", `--gpu name=a: sync: unknown key; did you mean "shadow.sync"? There are bar-map, `},
		{"name=a,bar.map=all", `--gpu name=a: bar.map: unknown key; did you mean "bar-map"? There are bar-map, `},
		{"name=a,shadow=flush", `--gpu name=a: shadow: unknown key; did you mean "shadow.sync=flush"? There are bar-map, `},
		{"name=a,card.bar1=16MiB", `--gpu name=a: card.bar1: unknown key; did you mean "bar1"? There are bar-map, `},
		{"name=a,limits.table-rate=1MiB", `--gpu name=a: limits.table-rate: is the server's, not a GPU's; give --table-rate to umbra serve`},
		{"name=a,map-pages=5000", `--gpu name=a: map-pages: is the server's, not a GPU's; give --map-pages to umbra serve`},
		{"name=a,max_dma_size=1TiB", `--gpu name=a: max_dma_size: is the server's, not a GPU's; give --max-dma-size to umbra serve`},
		{"name=a,period=5ms", `--gpu name=a: period: is the server's, not a GPU's; give --sched-credit-period to umbra serve, or umbra sched set credit.period=5ms`},
		{"name=a,sokcet=x", `--gpu name=a: sokcet: unknown key; did you mean "socket"? There are bar-map, bar1, bar3, cap, channels, doorbell, guaranteed, limits.queued, limits.request, msi, name, pci-device, pci-subsystem, priority, processes.group, profile, rom, shadow.scan, shadow.sync, socket, tables, temperature, tpcs, vram, weight`},
	} {
		_, err := join(t, "", c.flag)
		if beginning, cut := strings.CutSuffix(c.want, "There are bar-map, "); cut {
			require.ErrorContains(t, err, beginning)
		} else {
			require.EqualError(t, err, c.want)
		}
		require.IsType(t, new(Error), err)
	}
}

// TestFit: whatever set of GPUs is taken, nothing is given out twice.
func TestFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b strings.Builder
		b.WriteString("card: {vram: 2GiB}\ngpus:\n")
		for i := range rapid.IntRange(1, aggregator.MaxGuests).Draw(t, "gpus") {
			fmt.Fprintf(&b, "- {name: g%d, socket: %d.sock, vram: %dMiB, tables: %dMiB", i, i, rapid.IntRange(64, 300).Draw(t, "vram"), rapid.IntRange(1, 40).Draw(t, "tables"))
			if n := rapid.IntRange(0, 40).Draw(t, "channels"); n > 0 {
				fmt.Fprintf(&b, ", channels: %d", n)
			}
			if n := rapid.IntRange(0, 9).Draw(t, "guaranteed"); n > 0 {
				fmt.Fprintf(&b, ", guaranteed: %d", n)
			}
			b.WriteString("}\n")
		}
		file, err := Parse("f.yaml", []byte(b.String()))
		require.NoError(t, err)
		l, err := Join(Defaults(), file)
		if err != nil {
			require.ErrorContains(t, err, ": gpus[")
			return
		}
		memory, channels := own, 0
		for _, g := range l.Config.GPUs {
			memory += g.VRAM + g.Tables
			channels += g.Guaranteed
			require.Positive(t, g.Guaranteed)
			require.LessOrEqual(t, g.Guaranteed, g.Channels)
		}
		require.LessOrEqual(t, memory, l.Config.Card.VRAM)
		require.LessOrEqual(t, channels, gf100.Channels)
	})
}

// TestRoom: what is said to be left for one more GPU fits, and a MiB more does not.
func TestRoom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b strings.Builder
		fmt.Fprintf(&b, "card: {vram: %dMiB}\ngpus:\n", 64*rapid.IntRange(8, 96).Draw(t, "card"))
		n := rapid.IntRange(1, 3).Draw(t, "gpus")
		for i := range n {
			fmt.Fprintf(&b, "- {name: g%d, socket: %d.sock, vram: %dMiB}\n", i, i, rapid.IntRange(64, 600).Draw(t, "vram"))
		}
		file, err := Parse("f.yaml", []byte(b.String()))
		require.NoError(t, err)
		l, err := Join(Defaults(), file)
		if err != nil {
			require.ErrorContains(t, err, "does not fit")
			return
		}
		taken := Size(0)
		for _, g := range l.Config.GPUs {
			taken += g.VRAM + g.Tables
		}
		left, most := l.Room(taken)
		require.Equal(t, l.Config.Card.VRAM-own-taken, left)
		fits := func(vram Size) error {
			g, err := ParseGPU("gpu", fmt.Sprintf("name=more,socket=more.sock,vram=%v", vram))
			require.NoError(t, err)
			require.NoError(t, l.Complete(&g))
			return l.Fit(append(slices.Clone(l.Config.GPUs), g))
		}
		if most == 0 {
			require.Error(t, fits(leastGPU))
			return
		}
		require.NoError(t, fits(most))
		if most < 6<<30 {
			require.Error(t, fits(most+mib))
		}
	})
}

// TestWhatFits: what is said to fit in place of a GPU that does not, does, and a MiB more does
// not; where none is said to, the least GPU does not.
func TestWhatFits(t *testing.T) {
	says := regexp.MustCompile(`\.(vram|tables): \d.*; (without tables vram=)?(\d+)MiB or less fits, or start`)
	rapid.Check(t, func(t *rapid.T) {
		first, vram, tables := rapid.IntRange(64, 480).Draw(t, "first"), rapid.IntRange(64, 520).Draw(t, "vram"), rapid.IntRange(1, 600).Draw(t, "tables")
		fit := func(vram, tables int) error {
			text := fmt.Sprintf("card: {vram: 512MiB}\ngpus:\n- {name: a, socket: a.sock, vram: %dMiB, tables: 1MiB}\n- {name: b, socket: b.sock, vram: %dMiB", first, vram)
			if tables > 0 {
				text += fmt.Sprintf(", tables: %dMiB", tables)
			}
			file, err := Parse("f.yaml", []byte(text+"}\n"))
			require.NoError(t, err)
			_, err = Join(Defaults(), file)
			return err
		}
		err := fit(vram, tables)
		if err == nil {
			return
		}
		said := says.FindStringSubmatch(err.Error())
		if said == nil {
			require.ErrorContains(t, err, "; no GPU fits beside them, so start")
			require.Error(t, fit(64, tables), "%v", err)
			require.Error(t, fit(64, 0), "%v", err)
			require.Error(t, fit(vram, 1), "%v", err)
			return
		}
		n, bad := strconv.Atoi(said[3])
		require.NoError(t, bad)
		change := func(n int) error {
			switch {
			case said[2] != "":
				return fit(n, 0)
			case said[1] == "tables":
				return fit(vram, n)
			}
			return fit(n, tables)
		}
		require.NoError(t, change(n), "%v", err)
		require.ErrorContains(t, change(n+1), "does not fit", "%v", err)
	})
}

// TestChange: what is live can be changed, alone and together, and nothing else.
func TestChange(t *testing.T) {
	l, err := join(t, "gpus:\n- {name: a, socket: a.sock, vram: 64MiB}\n")
	require.NoError(t, err)
	g := l.Config.GPUs[0]
	changed, err := l.Change(g, "shadow.sync=eager")
	require.NoError(t, err)
	require.Equal(t, Shadow{Sync: "eager", Scan: "incremental"}, changed.Shadow)
	require.Equal(t, map[string]any{"shadow.sync": "eager", "shadow.scan": "incremental", "weight": 100, "cap": Percent(0), "priority": 0,
		"limits.request": RequestLimit(0), "limits.queued": 0}, changed.Live())
	require.Equal(t, "lazy", g.Shadow.Sync)
	for _, c := range []struct{ text, want string }{
		{"shadow.sync=never", `gpu a: shadow.sync: never: must be eager or flush or lazy`},
		{"vram=128MiB", `gpu a: vram: cannot be changed while the GPU is there; remove the GPU and add it with vram=128MiB. These can: cap, limits.queued, limits.request, priority, shadow.scan, shadow.sync`},
		{"bar-map=bar1,bar3", `gpu a: bar-map: cannot be changed while the GPU is there; remove the GPU and add it with bar-map=bar1,bar3. These can: `},
		{"bar.map=all", `gpu a: bar.map: unknown key; did you mean "bar-map"? That cannot be changed while the GPU is there. There are cap, `},
		{"sync=flush", `gpu a: sync: unknown key; did you mean "shadow.sync"? There are cap, `},
		{"shadow=flush", `gpu a: shadow: unknown key; did you mean "shadow.sync=flush"? There are cap, `},
		{"shadow=often", `gpu a: shadow: unknown key; there are cap, `},
		{"limits.table-rate=1MiB", `gpu a: limits.table-rate: is the server's, not a GPU's; give --table-rate to umbra serve`},
		{"scheduler.depth=2", `gpu a: scheduler.depth: is the server's, not a GPU's; give --sched-depth to umbra serve, or umbra sched set depth=2`},
		{"shadow.snyc=lazy", `gpu a: shadow.snyc: unknown key; did you mean "shadow.sync"? There are cap, limits.queued, limits.request, priority, shadow.scan, shadow.sync, weight`},
		{"lazy", `gpu a: lazy: not keys and values; write shadow.sync=lazy`},
	} {
		after, err := l.Change(changed, c.text)
		require.ErrorContains(t, err, c.want, c.text)
		require.Equal(t, changed, after)
	}
}

// TestFifthGPUIsToldOfTheFour: four GPUs that do not say how many channels they have take all of
// the card's. The fifth is told who did, and what it says to do makes five fit.
func TestFifthGPUIsToldOfTheFour(t *testing.T) {
	l, err := Join(Defaults(), Flags(Config{Control: "control", Card: Card{VRAM: 4 << 30}}, []string{"control", "vram"}))
	require.NoError(t, err)
	var there []GPU
	// add is what umbra gpu add does.
	add := func(name, more string) error {
		g, err := ParseAdded("name=" + name + ",socket=" + name + ".sock,vram=64MiB" + more)
		require.NoError(t, err)
		require.NoError(t, l.Complete(&g))
		all := append(slices.Clone(there), g)
		if err := l.Fit(all); err != nil {
			return err
		}
		there = all
		return nil
	}
	four := func(more string) {
		there = nil
		for _, name := range []string{"a", "b", "c", "d"} {
			require.NoError(t, add(name, more))
		}
	}
	// fewer has a come again with so many channels, and then e.
	fewer := func(a, e string) error {
		there = slices.DeleteFunc(there, func(g GPU) bool { return g.Name == "a" })
		require.NoError(t, add("a", a))
		return add("e", e)
	}
	four("")
	require.EqualError(t, add("e", ""), "gpu name=e: channels: the card has 128, and the other GPUs take all: a, b, c, d 32 each, as a GPU has that does not say channels; "+
		"remove one of them and add it with fewer, for example a with channels=16, which leaves 16 for this one, or all with channels=25; umbra status says how many are free")
	require.NoError(t, fewer(",channels=16", ""))
	require.Equal(t, 16, there[4].Channels)
	four(",channels=25")
	require.NoError(t, add("e", ",channels=25"))

	four(",channels=30")
	require.EqualError(t, add("e", ",channels=20"), "gpu name=e: channels: 20: does not fit: the card has 128, and 8 are left for it: a, b, c, d 30 each; "+
		"remove one of them and add it with fewer, for example a with channels=18, which leaves 20 for this one, or all with channels=25; umbra status says how many are free")
	require.NoError(t, fewer(",channels=18", ",channels=20"))

	four("")
	require.ErrorContains(t, add("e", ",channels=40"), "; remove some of them and add them with fewer, or all with channels=25;")

	// Nobody can have none, so that there is a most.
	there = nil
	require.NoError(t, add("a", ",channels=127"))
	require.NoError(t, add("b", ",channels=1"))
	require.EqualError(t, add("e", ",channels=128"), "gpu name=e: channels: 128: does not fit: the card has 128, and 0 are left for it: a 127; b 1; "+
		"ask for channels=126 or less, for each other GPU needs one; remove some of them and add them with fewer, or all with channels=42; umbra status says how many are free")
	require.EqualError(t, add("e", ",channels=126"), "gpu name=e: channels: 126: does not fit: the card has 128, and 0 are left for it: a 127; b 1; "+
		"remove one of them and add it with fewer, for example a with channels=1, which leaves 126 for this one, or all with channels=42; umbra status says how many are free")
	require.ErrorContains(t, add("e", ",channels=128,guaranteed=127"), "; ask for guaranteed=126 or less, for each other GPU needs one;")
	require.NoError(t, fewer(",channels=1", ",channels=126"))

	// Of many the first are named.
	there = nil
	for i := range 30 {
		require.NoError(t, add(fmt.Sprintf("g%d", i), ",channels=4"))
	}
	require.NoError(t, add("last", ",channels=8"))
	require.ErrorContains(t, add("more", ""), "take all: last 8; g0, g1, g2, g3, g4, g5, g6, g7 and 22 others 4 each; remove")
}

// TestListsMayHaveBrackets: a list that is written as in a file is taken elsewhere, too.
func TestListsMayHaveBrackets(t *testing.T) {
	g, err := ParseGPU("--gpu", "name=a,bar-map=[bar1, bar3],tpcs=[4,4,3,3]")
	require.NoError(t, err)
	require.Equal(t, homes.Map(homes.MapBAR1|homes.MapBAR3), g.BARMap)
	require.Equal(t, Counts{4, 4, 3, 3}, g.TPCs)
	g, err = ParseGPU("--gpu", "name=[a]")
	require.NoError(t, err)
	require.Equal(t, "[a]", g.Name, "which is no list")
	for _, text := range []string{"[bar1,bar3", "bar1,bar3]", "[[bar1]]", "[]"} {
		_, err := ParseGPU("--gpu", "name=a,bar-map="+text)
		require.ErrorContains(t, err, "cannot be mapped; say none, all, or any of bar1, bar3, pramin, rom")
	}
}
