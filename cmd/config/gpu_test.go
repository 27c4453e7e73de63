package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/gate"
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// TestGPUs: a GPU has a key from itself, else from its profile, else from the card.
func TestGPUs(t *testing.T) {
	c, err := read(`
card: {vram: 2GiB, tpcs: [2, 2], temperature: 70}
shadow: {scan: full}
profiles:
  - {name: small, vram: 128MiB, channels: 8, weight: 50, cap: 80%, msi: false, shadow: {sync: flush}, limits: {request: 0s}}
gpus:
  - {name: a, socket: a.sock, vram: 512MiB}
  - {name: b, profile: small, socket: b.sock, temperature: 30}
  - {name: c, shadow: {sync: lazy, scan: incremental}, weight: 7, msi: true, profile: small, socket: c.sock}
`, "name=d,socket=d.sock,vram=64MiB,tpcs=4,4,msi=false")
	require.NoError(t, err)
	a, b, g, d := c.GPUs[0], c.GPUs[1], c.GPUs[2], c.GPUs[3]
	usual := CardTime{Weight: 100, Processes: Processes{Group: "space"}}
	require.Equal(t, Share{512 << 20, 32, 32, 64 << 20}, a.Share)
	require.Equal(t, usual, a.CardTime)
	require.Equal(t, c.Card.Face, a.Face)
	require.Equal(t, Shadow{"lazy", "full"}, a.Shadow)
	require.Equal(t, Share{128 << 20, 8, 8, 16 << 20}, b.Share)
	require.Equal(t, CardTime{50, 80, 0, GuestLimits{Request: RequestLimit(sched.Forever)}, usual.Processes}, b.CardTime)
	require.Equal(t, Shadow{"flush", "full"}, b.Shadow)
	require.Equal(t, []any{30, false, Counts{2, 2}}, []any{b.Temperature, b.MSI, b.TPCs})
	require.Equal(t, []any{70, true, 7, Shadow{"lazy", "incremental"}}, []any{g.Temperature, g.MSI, g.Weight, g.Shadow})
	require.Equal(t, []any{70, false, Counts{4, 4}}, []any{d.Temperature, d.MSI, d.TPCs})
	require.Equal(t, "f.yaml:5:25: profiles[0].vram", b.Where("vram"))
	require.Equal(t, "f.yaml:2:47: card.temperature", g.Where("temperature"))
	require.Equal(t, "--gpu name=d: bar1", d.Where("bar1"))
}

// TestEveryKeyOfAGPU: each key can be given to a GPU, and all but its own to a profile.
func TestEveryKeyOfAGPU(t *testing.T) {
	for _, o := range options(new(GPU)) {
		text, more := other(o), ""
		switch o.path {
		case "name", "profile":
			continue
		case "vram", "tables", "guaranteed":
			more = ",channels=128"
			text = map[string]string{"vram": "80MiB", "tables": "9MiB", "guaranteed": "3"}[o.path]
		}
		list, chip := "name=a", cmp.Or(o.tag.Get("chip"), "gf100")
		for key, value := range map[string]string{"socket": "a.sock", "vram": "4GiB", "chip": chip, o.path: text} {
			list += "," + key + "=" + value
		}
		c, err := read("card: {vram: 6GiB}\n", list+more)
		require.NoError(t, err, o.path)
		plain, err := read("card: {vram: 6GiB}\n", "name=a,socket=x.sock,vram=4GiB,chip="+chip)
		require.NoError(t, err)
		require.NotEqual(t, values(&plain.GPUs[0])[o.path], values(&c.GPUs[0])[o.path], o.path)
		saved, err := c.Save(c.Schedule(), c.GPUs)
		require.NoError(t, err)
		again, err := read(string(saved))
		require.NoError(t, err, "%s", saved)
		require.Equal(t, values(&c.GPUs[0]), values(&again.GPUs[0]), "%s", saved)
		if o.path == "socket" {
			continue
		}
		file := fmt.Sprintf("card: {vram: 6GiB}\nprofiles:\n- {name: p}\n- %s\n", strings.Replace(nested(o.path, fmt.Sprintf("%q", text)), "{", "{name: q, ", 1))
		p := Default()
		require.NoError(t, p.Parse("f.yaml", []byte(file)), file)
		require.NoError(t, p.AddGPU("--gpu", strings.TrimSuffix("name=a,socket=a.sock,profile=q"+more+map[bool]string{true: ",chip=" + chip}[o.path != "chip"], ",")))
		err = p.Check()
		if o.path == "vram" {
			require.NoError(t, err)
			require.Equal(t, c.GPUs[0].VRAM, p.GPUs[0].VRAM)
		} else {
			require.ErrorContains(t, err, "vram: missing")
			require.Equal(t, values(&c.GPUs[0])[o.path], values(&p.GPUs[0])[o.path], o.path)
		}
	}
}

func TestGPUErrors(t *testing.T) {
	const a = "gpus:\n- {name: a, socket: a.sock, vram: 128MiB}\n"
	gpu := func(more string) string { return "- {name: b, socket: b.sock, vram: 64MiB, " + more + "}\n" }
	many := "card: {vram: 6GiB}\ngpus:\n"
	for i := range aggregator.MaxGuests + 1 {
		many += fmt.Sprintf("- {name: g%d, socket: %d.sock, vram: 64MiB}\n", i, i)
	}
	for _, c := range []struct{ file, want string }{
		{a + "- {name: b, socket: b.sock, vram: 512MiB}\n", `f.yaml:3:35: gpus[1].vram: 512MiB: does not fit: with 64MiB for page tables it takes 576MiB, and the card's 512MiB have 360MiB left; vram=320MiB fits, or give the card more (card.vram, --vram)`},
		{a + gpu("tables: 500MiB"), `without tables vram=320MiB fits`},
		{a + "- {name: a, socket: b.sock, vram: 64MiB}\n", `f.yaml:3:10: gpus[1].name: a: is there twice, first at f.yaml:2:10: gpus[0].name; give each GPU a name of its own`},
		{a + "- {name: b, socket: ./a.sock, vram: 64MiB}\n", `f.yaml:3:21: gpus[1].socket: ./a.sock: is there twice, first at f.yaml:2:21: gpus[0].socket; give each a path of its own`},
		{"socket: ./a.sock\ncontrol: a.sock\n", `f.yaml:2:10: control: a.sock: is there twice, first at f.yaml:1:9: socket; give each a path of its own`},
		{"socket: c.sock\n" + a, `f.yaml:1:9: socket: c.sock: gives the whole card to one guest, but f.yaml:3:3: gpus[0] shares it; remove one of them`},
		{"socket: s\ncard: {vram: 6208MiB}\n", `f.yaml:2:14: card.vram: 6208MiB: a GF100 has at most 6GiB, and f.yaml:1:9: socket gives the whole card to one guest; give it less, or share it among GPUs`},
		{"card: {vram: 16GiB}\ngpus:\n- {name: a, socket: a.sock, vram: 7GiB}\n", `f.yaml:3:35: gpus[0].vram: 7GiB: a gf100 (f.yaml:3:3: gpus[0].chip) has at most 6GiB; give it less`},
		{many, `f.yaml:35:3: gpus[32]: is GPU 33, and at most 32 share the card (--guests (or limits.guests in the file))`},
		{"gpus:\n- {name: a/b, socket: a.sock, vram: 128MiB}\n", `f.yaml:2:10: gpus[0].name: a/b: may have letters, digits and . _ -, begins with a letter or digit, and has at most 64 of them`},
		{"gpus:\n" + gpu("channels: 8, guaranteed: 9"), `f.yaml:2:67: gpus[0].guaranteed: 9: more than its 8 channels (f.yaml:2:52: gpus[0].channels)`},
		{"gpus:\n- {name: a, socket: a.sock, vram: 64MiB, channels: 100}\n" + gpu("channels: 29"), `f.yaml:3:52: gpus[1].channels: 29: does not fit: of the card's 128 channels 28 are left; ask for fewer, or give other GPUs fewer; 2 GPUs can have channels=64 each`},
		{"gpus:\n- {name: a, socket: a.sock, vram: 64MiB, channels: 128}\n- {name: b, socket: b.sock, vram: 64MiB}\n", `f.yaml:3:3: gpus[1].channels: the other GPUs have all of the card's 128 channels; give other GPUs fewer; 2 GPUs can have channels=64 each`},
		{"profiles: [{name: small, vram: 64MiB}]\ngpus:\n- {name: a, socket: a.sock, profile: smal}\n", `gpus[0].profile: smal: no such profile; did you mean "small"? There are small`},
		{"profiles:\n- {name: p}\n- {name: p}\n", `f.yaml:3:10: profiles[1].name: p: is there twice, first at f.yaml:2:10: profiles[0].name`},
	} {
		_, err := read(c.file)
		require.ErrorContains(t, err, c.want, "%s", c.file)
		require.ErrorAs(t, err, new(*Error))
	}
	for _, c := range []struct{ flag, want string }{
		{"a", `--gpu: a: not keys and values; write name=a,socket=a.sock,vram=256MiB`},
		{"name=a,vram=", `--gpu name=a: vram: has no value; give one or leave it out`},
		{"name=a,name=b", `--gpu: name=a,name=b: name is there twice`},
		{"name=a,sync=flush", `--gpu name=a: sync: unknown key; did you mean "shadow.sync"? There are access.group, access.mode, access.user, bar-map, `},
	} {
		_, err := read("", c.flag)
		require.ErrorContains(t, err, c.want)
	}
}

// TestFit: whatever set of GPUs is accepted, nothing is given out twice, and what is said to be
// left for one more GPU fits, and a MiB more does not.
func TestFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Default()
		c.Card.VRAM = Size(rapid.IntRange(4, 40).Draw(t, "card")) * 64 * mib
		for i := range rapid.IntRange(1, aggregator.MaxGuests-1).Draw(t, "gpus") {
			text := fmt.Sprintf("name=g%d,socket=%d.sock,vram=%dMiB,tables=%dMiB", i, i, rapid.IntRange(64, 300).Draw(t, "vram"), rapid.IntRange(1, 40).Draw(t, "tables"))
			if n := rapid.IntRange(0, 40).Draw(t, "channels"); n > 0 {
				text += fmt.Sprintf(",channels=%d", n)
			}
			if n := rapid.IntRange(0, 9).Draw(t, "guaranteed"); n > 0 {
				text += fmt.Sprintf(",guaranteed=%d", n)
			}
			require.NoError(t, c.AddGPU("--gpu", text))
		}
		if err := c.Check(); err != nil {
			require.ErrorContains(t, err, "--gpu name=g")
			return
		}
		used, channels := Size(0), 0
		for _, g := range c.GPUs {
			used += g.VRAM + g.Tables
			channels += g.Guaranteed
			require.Positive(t, g.Guaranteed)
			require.LessOrEqual(t, g.Guaranteed, g.Channels)
		}
		require.LessOrEqual(t, used+reserved, c.Card.VRAM)
		require.LessOrEqual(t, channels, gf100.Channels)
		left, most := c.Room(used)
		require.Equal(t, c.Card.VRAM-reserved-used, left)
		fits := func(vram Size) error {
			g, err := c.NewGPU(fmt.Sprintf("name=more,socket=more.sock,vram=%v", vram))
			require.NoError(t, err)
			return c.Fit(append(c.GPUs[:len(c.GPUs):len(c.GPUs)], g))
		}
		if most == 0 {
			require.Error(t, fits(leastGPU))
			return
		}
		if channels < gf100.Channels {
			require.NoError(t, fits(most))
		}
		if most < 6<<30 {
			require.Error(t, fits(most+mib))
		}
	})
}

// TestChange: a GPU is changed as all options say, or not at all.
func TestChange(t *testing.T) {
	c, err := read("", "name=a,socket=a.sock,vram=64MiB,weight=7")
	require.NoError(t, err)
	g := c.GPUs[0]
	for _, text := range []string{"weight=9,vram=128MiB", "weight=9,shadow.snyc=lazy", "weight=9,shadow.sync=eager"} {
		after, err := g.Change(text, ByScheduler)
		require.ErrorAs(t, err, new(*Error), text)
		require.Equal(t, g, after)
	}
}

// TestSchedule: every policy has its word, off is none at all, and the defaults are the
// scheduler's own.
func TestSchedule(t *testing.T) {
	for _, policy := range sched.Policies() {
		c, err := read("scheduler: {policy: " + policy + "}\n")
		require.NoError(t, err)
		want := sched.Default()
		require.NoError(t, want.Policy.UnmarshalText([]byte(policy)))
		s := c.Schedule()
		got, err := s.Config()
		require.NoError(t, err)
		require.Equal(t, &want, got)
	}
	for _, o := range options(new(Schedule)) { // bounds are no wider than the scheduler's
		s := Default().Schedule()
		s.Policy = "credit"
		if o.path == "policy" {
			continue
		}
		require.NotEmpty(t, o.tag.Get("default"), o.path)
		require.NotEmpty(t, o.tag.Get("help"), o.path)
		require.NoError(t, Assign(&s, "test", o.path+"="+other(o), ""))
		before := s
		before.Policy = "off"
		none, err := before.Config()
		require.NoError(t, err)
		require.Nil(t, none)
		c, err := s.Config()
		require.NoError(t, err, o.path)
		usual := sched.Default()
		require.NotEqual(t, &usual, c, "%s is lost", o.path)
	}
	for _, o := range options(new(Schedule)) { // and no narrower, with the same keys in errors
		rules := o.tag.Get("validate")
		if o.path == "policy" || rules == "" {
			continue
		}
		for i, bound := range strings.Split(Accepts(rules), " to ") {
			s := Default().Schedule()
			at := slices.IndexFunc(options(&s), func(x option) bool { return x.path == o.path })
			value := options(&s)[at]
			s.Policy = "credit"
			require.NoError(t, value.parse(bound))
			_, err := s.Config()
			require.NoError(t, err, "%s: %s", o.path, bound)
			value.value.SetInt(value.value.Int() + int64(2*i-1)) // below the first, above the second
			_, err = s.Config()
			e := new(sched.Error)
			require.ErrorAs(t, err, &e, "%s beyond %s", o.path, bound)
			require.Equal(t, o.path, e.Field)
		}
	}
	for _, c := range []struct {
		path   string
		beyond sched.NodeConfig
	}{
		{"weight", sched.NodeConfig{Weight: sched.MaxWeight + 1}}, {"weight", sched.NodeConfig{Weight: -1}},
		{"priority", sched.NodeConfig{Priority: sched.MaxPriority + 1}}, {"priority", sched.NodeConfig{Priority: -1}},
		{"limits.queued", sched.NodeConfig{Queued: 1<<30 + 1}}, {"limits.queued", sched.NodeConfig{Queued: -1}},
	} {
		i := slices.IndexFunc(options(new(CardTime)), func(o option) bool { return o.path == c.path })
		o := options(new(CardTime))[i]
		e := new(sched.Error)
		require.ErrorAs(t, c.beyond.Check(), &e)
		require.Equal(t, "must be "+Accepts(o.tag.Get("validate")), e.Reason, c.path)
	}
}

// TestSchedulerAuto: GPUs that share the card, or may come to share it, have a scheduler.
func TestSchedulerAuto(t *testing.T) {
	const a, b = "name=a,socket=a.sock,vram=64MiB", "name=b,socket=b.sock,vram=64MiB"
	for _, c := range []struct {
		file string
		gpus []string
		want string
	}{
		{"", nil, "off"}, {"socket: s.sock\n", nil, "off"}, {"control: c.sock\n", nil, "credit"}, {"socket: s.sock\ncontrol: c.sock\n", nil, "off"},
		{"", []string{a}, "off"}, {"control: c.sock\n", []string{a}, "credit"}, {"", []string{a, b}, "credit"},
		{"scheduler: {policy: off}\n", []string{a, b}, "off"}, {"scheduler: {policy: fifo}\n", []string{a}, "fifo"},
	} {
		got, err := read(c.file, c.gpus...)
		require.NoError(t, err)
		require.Equal(t, c.want, got.Scheduler.Policy, c)
	}
}

// TestCardTime: the scheduler gets each GPU's share of the card's time.
func TestCardTime(t *testing.T) {
	share := CardTime{10000, 100, 7, GuestLimits{RequestLimit(time.Second), 5}, Processes{"guest"}}
	require.Equal(t, sched.NodeConfig{Weight: 10000, Cap: 1000, Priority: 7, Limit: time.Second, Queued: 5}, share.Node())
	require.Equal(t, gate.ByGuest, share.Grouping())
}

// TestFitAddresses: the card and the mapped windows of all GPUs fit into the addresses of a process.
func TestFitAddresses(t *testing.T) {
	c, err := read("card: {vram: 6GiB, chip: gh100, bar1: 8GiB}\n", "name=a,socket=a.sock,vram=4GiB", "name=b,socket=b.sock,vram=64MiB,chip=gf100,bar-map=rom")
	require.NoError(t, err)
	require.NoError(t, c.FitAddresses(c.GPUs, 16<<30))
	require.EqualError(t, c.FitAddresses(c.GPUs, 16<<30-1),
		"f.yaml:1:39: card.bar1: 8GiB: with the card's 6GiB and the server's 2GiB it takes 16GiB of addresses, and this process may have 16383MiB; give less, leave bar1 out of bar-map, or raise the limit RLIMIT_AS")
}

// TestClientPart: all clients together never take more of what the process has than is theirs. The
// default fits a guest of 256 GiB beside 31 others. An error says what would do.
func TestClientPart(t *testing.T) {
	for _, c := range []struct {
		key, file string
		all       Size
		alone     bool
		want      Size
		err       string
	}{
		{ClientMemory, "", 128 << 40, false, 1 << 40, ""},
		{ClientMemory, "", 128 << 40, true, 1 << 40, ""},
		{ClientMemory, "", 64<<40 + 4095, false, 1 << 39, ""},
		{ClientMemory, "", 16 << 30, false, 0, "server.max-dma-memory in the file): 256MiB: more than the 128MiB of addresses of each of 32 guests, which together may have a quarter of the process's 16GiB; lower limits.guests, or raise the limit RLIMIT_AS to 32GiB"},
		{ClientMemory, "server: {max-dma-memory: 2TiB}\n", 128 << 40, false, 0, "f.yaml:1:26: server.max-dma-memory: 2TiB: more than the 1TiB of addresses of each of 32 guests"},
		{ClientMemory, "server: {max-dma-memory: 32TiB}\n", 128 << 40, true, 32 << 40, ""},
		{ClientAlloc, "", 24<<30 + 12345, false, 384 << 20, ""},
		{ClientAlloc, "", 24 << 30, true, 1 << 30, ""},
		{ClientAlloc, "", 1 << 20, true, 0, "control group's 1MiB; raise the control group's memory.max to 2MiB"},
		{ClientAlloc, "", 32 << 20, false, 0, "server.max-dma-alloc in the file): 1MiB: more than the 512KiB of each of 32 guests, which together may have half of this machine's or control group's 32MiB; lower limits.guests, or raise the control group's memory.max to 64MiB"},
		{ClientMappings, "", 65530, false, 128, ""},
		{ClientMappings, "", 32 * 8 * 100, false, 100, ""},
		{ClientMappings, "", 32*8*8 - 1, false, 0, "server.max-dma-mappings in the file): 8: more than the 7 mappings of each of 32 guests, which together may have an eighth of the system's 2047; lower limits.guests, or raise the sysctl vm.max_map_count to 2048"},
		{ClientMappings, "limits: {guests: 2}\n", 2047, false, 127, ""},
		{ClientMappings, "server: {max-dma-mappings: 255}\n", 65530, false, 255, ""},
		{ClientMappings, "server: {max-dma-mappings: 256}\n", 65530, false, 0, "f.yaml:1:28: server.max-dma-mappings: 256: more than the 255 mappings of each of 32 guests"},
		{ClientMappings, "server: {max-dma-mappings: 8192}\n", 65530, true, 0, "give 8191 or less, or raise the sysctl vm.max_map_count to 65536"},
		{ClientMappings, "server: {max-dma-mappings: 128}\n", 32 * 8 * 100, false, 0, "give 100 or less"}, // the default, given
	} {
		l, err := read(c.file)
		require.NoError(t, err)
		got, err := l.ClientPart(c.key, uint64(c.all), c.alone)
		require.EqualValues(t, c.want, got, c)
		if c.err == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, c.err)
		}
	}
}

// TestChips: a GPU of another chip has what that chip has, with its defaults, beside GPUs of the card's chip.
func TestChips(t *testing.T) {
	c, err := read("card: {vram: 6GiB, msi: false, temperature: 70}\n", "name=a,socket=a.sock,vram=4GiB,chip=gh100,model=h200", "name=b,socket=b.sock,vram=64MiB")
	require.NoError(t, err)
	a, b := c.GPUs[0], c.GPUs[1]
	require.Equal(t, []any{Size(256 << 20), Counts{7, 7, 7, 7, 7, 7, 7, 8}, "h200", false, Size(4<<30 + 16<<20)}, []any{a.BAR1, a.TPCs, a.Model, a.MSI, a.Memory()})
	require.Equal(t, c.Card.Face, b.Face)
	require.Equal(t, b.VRAM, b.Memory())
	var keys []string
	for _, s := range a.Settings(Unshared, Schedule{}) {
		if keys = append(keys, s.Key); s.Key == "bar1" {
			require.Equal(t, "256MiB", s.Default)
		}
	}
	require.Contains(t, keys, "model")
	require.NotContains(t, keys, "rom")
	all, err := read("card: {chip: gh100, bar1: 1GiB, vram: 5GiB}\n", "name=a,socket=a.sock,vram=4GiB", "name=b,socket=b.sock,vram=64MiB,chip=gf100")
	require.NoError(t, err)
	require.Equal(t, []any{"gh100", "gf100", Size(1 << 30), Size(1 << 30)}, []any{all.GPUs[0].Chip, all.GPUs[1].Chip, all.GPUs[0].BAR1, all.GPUs[1].BAR1})
	for _, x := range []struct{ file, gpu, want string }{
		{"", "name=a,socket=a.sock,vram=512MiB,chip=gh100",
			`--gpu name=a: vram: 512MiB: a gh100 (--gpu name=a: chip) has a multiple of 4GiB: its driver saves the rest of 4GiB in the guest's RAM at each suspend and power-off; give vram=4GiB, or another chip`},
		{"", "name=a,socket=a.sock,vram=4112MiB,chip=gh100", `; give vram=4GiB, or another chip`}, // as its driver and umbra status show it
		{"card: {vram: 6GiB}\n", "name=a,socket=a.sock,vram=4GiB,chip=gh100,rom=x.rom",
			`--gpu name=a: rom: x.rom: only a gf100 has this option, and the chip is gh100 (--gpu name=a: chip); remove the option, or say chip gf100`},
		{"card: {vram: 6GiB}\n", "name=a,socket=a.sock,vram=64MiB,model=h200", `--gpu name=a: model: h200: only a gh100 has this option, and the chip is gf100`},
		{"card: {chip: gh100, rom: x.rom}\n", "", `f.yaml:1:26: card.rom: x.rom: only a gf100 has this option, and the chip is gh100 (f.yaml:1:14: card.chip); remove the option`},
		{"card: {vram: 4GiB}\n", "name=a,socket=a.sock,vram=4GiB,chip=gh100", `4GiB: does not fit: with 64MiB for page tables it takes 4176MiB, and the card's 4GiB have 4088MiB left; no GPU fits; give the card 4224MiB or more`},
		{"card: {vram: 5GiB, chip: gh100}\n", "name=a,socket=a.sock", `gets, for example 4GiB`},
		{"card: {index: 1}\n", "", `card.index: 1: only a nvidia card has this option, and the kind is soft (--kind (or card.kind in the file)); remove the option, or say kind nvidia`},
		{"card: {kind: nvidia, vram: 1GiB}\n", "", `card.vram: 0B: only a soft card has this option`},
		{"card: {kind: nvidia, chip: gf100}\n", "", `card.chip: gf100: the card is an NVIDIA card (f.yaml:1:14: card.kind), on which virtual GPUs have the chip gh100; leave the option out`},
		{"card: {kind: nvidia}\n", "name=a,socket=a.sock,vram=64MiB,chip=gf100", `--gpu name=a: chip: gf100: the card is an NVIDIA card`},
		{"card: {kind: nvidia}\n", "name=a,socket=a.sock,vram=4GiB,bar-map=bar1,bar3", `bar-map: bar1,bar3: the card is an NVIDIA card (f.yaml:1:14: card.kind), on which virtual GPUs have bar-map none or bar3; leave`},
		{"card: {kind: nvidia}\nscheduler: {policy: credit}\n", "", `scheduler.policy: credit: an NVIDIA card shares its engines itself`},
		{"card: {kind: nvidia}\n", "name=a,socket=a.sock,vram=4GiB,cap=50", `cap: 50: only a soft card has this option`},
	} {
		var gpus []string
		if x.gpu != "" {
			gpus = []string{x.gpu}
		}
		_, err := read(x.file, gpus...)
		require.ErrorContains(t, err, x.want)
	}
	on, err := read("card: {kind: nvidia}\ncontrol: c.sock\n", "name=a,socket=a.sock,vram=60GiB,weight=300", "name=b,socket=b.sock,vram=4GiB")
	require.NoError(t, err, "whether it fits is known when the card is open")
	require.Equal(t, []any{"gh100", Size(256 << 20), aperture.MapBAR3, "off", BySlices}, []any{on.GPUs[1].Chip, on.GPUs[1].BAR1, on.GPUs[1].BARMap, on.Scheduler.Policy, on.Sharing()})
	on.Card.VRAM = 62 << 30
	require.ErrorContains(t, on.Fit(on.GPUs), "give other GPUs less")
}
