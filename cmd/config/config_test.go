package config

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// read is the configuration of a file and of --gpu flags.
func read(file string, gpus ...string) (*Config, error) {
	c := Default()
	if err := c.Parse("f.yaml", []byte(file)); err != nil {
		return c, err
	}
	for _, text := range gpus {
		if err := c.AddGPU("--gpu", text); err != nil {
			return c, err
		}
	}
	return c, c.Check()
}

// other is a text for the option that is not its default.
func other(o option) string {
	switch o.value.Interface().(type) {
	case bool:
		return fmt.Sprint(o.tag.Get("default") != "true")
	case Address:
		return ":9101"
	case ID:
		return "06dd"
	case Mode:
		return "0660"
	case Subsystem:
		return "1028:0001"
	case RequestLimit:
		return "7s"
	case Counts:
		return "2,2"
	}
	switch rules := o.tag.Get("validate"); {
	case strings.HasPrefix(rules, "oneof="):
		words := strings.Fields(strings.TrimPrefix(rules, "oneof="))
		return words[(slices.Index(words, o.tag.Get("default"))+1)%len(words)]
	case rules != "": // the upper bound, or if that is the default the lower one
		_, high, _ := strings.Cut(Accepts(rules), " to ")
		high, _, _ = strings.Cut(high, ",")
		if high == o.tag.Get("default") {
			high, _, _ = strings.Cut(Accepts(rules), " to ")
		}
		return high
	}
	return map[string]string{"bar-map": "bar1,rom"}[o.path[strings.LastIndex(o.path, ".")+1:]] + map[bool]string{true: "some-text"}[o.value.Kind().String() == "string"]
}

// nested writes an option as a file has it.
func nested(path, value string) string {
	out := value
	for _, w := range slices.Backward(strings.Split(path, ".")) {
		out = fmt.Sprintf("{%s: %s}", w, out)
	}
	return out
}

// values lists every option by key.
func values(p any) map[string]any {
	out := make(map[string]any)
	for _, o := range options(p) {
		out[o.path] = o.value.Interface()
	}
	return out
}

// TestEveryOption: each option can be given by a file, by a flag and by a saved file, and changes nothing else.
func TestEveryOption(t *testing.T) {
	usual := values(Default())
	for _, o := range options(Default()) {
		text := other(o)
		want := Default()
		for _, w := range options(want) {
			if w.path == o.path {
				require.NoError(t, w.set(text), o.path)
			}
		}
		require.NotEqual(t, usual, values(want), o.path)
		fromFile := Default()
		require.NoError(t, fromFile.Parse("f.yaml", []byte(nested(o.path, fmt.Sprintf("%q", text)))))
		require.Equal(t, values(want), values(fromFile), o.path)
		require.Regexp(t, `^f\.yaml:1:\d+: `+o.path+"$", fromFile.Where(o.path))

		fromFlag := Default()
		fromFlag.Override(want, []string{o.flag})
		require.Equal(t, values(want), values(fromFlag), o.path)
		require.Equal(t, "--"+o.flag, fromFlag.Where(o.path))

		saved, err := fromFlag.Save(fromFlag.Schedule(), nil)
		require.NoError(t, err)
		fromSaved := Default()
		require.NoError(t, fromSaved.Parse("saved.yaml", saved), "%s", saved)
		require.Equal(t, values(want), values(fromSaved), "%s", saved)
	}
}

// TestFileErrors: an error names file, line, column, key and value, and what would be accepted.
func TestFileErrors(t *testing.T) {
	const top = "socket, access, control, control-access, metrics, card, server, log, shadow, limits, scheduler, gpus, profiles"
	const card = "kind, vram, engines, slice, compiler, llvm, index, user, any-driver, chip, model, rom, msi, temperature, tpcs, bar1, bar3, bar-map, pci-device, pci-subsystem"
	const size = "is not a size; write a whole number and a unit: 512MiB, 1GiB (KiB, MiB, GiB, TiB; B for bytes); must be"
	for _, c := range []struct{ file, want string }{
		{"card:\n  vram: 5x\n", `f.yaml:2:9: card.vram: "5x" ` + size + ` 64MiB to 64GiB, a multiple of 64MiB`},
		{"card: {vram: 16777216TiB}\n", `f.yaml:1:14: card.vram: "16777216TiB" is larger than 16777215TiB, the largest size there is; must be 64MiB to 64GiB, a multiple of 64MiB`},
		{"limits:\n  table-rate: 2048GiB\n", `f.yaml:2:15: limits.table-rate: 2048GiB: must be 1MiB to 1TiB`},
		{"limits: {table-rate: -5MiB}\n", `f.yaml:1:22: limits.table-rate: "-5MiB" is below zero; must be 1MiB to 1TiB`},
		{"card: {bar-map: [bar1, bar1]}\n", `f.yaml:1:17: card.bar-map: bar1 is there twice; say it once`},
		{"access: {mode: 0999}\n", `f.yaml:1:16: access.mode: "0999" is not a mode; write the permissions in octal digits: 0600, 0660 or 0666`},
		{"control-access: {mode: 0440}\n", `f.yaml:1:24: control-access.mode: "0440" lets nobody connect, which takes write permission; write 0600, 0660 or 0666`},
		{"card: {bar1: 96MiB}\n", `f.yaml:1:14: card.bar1: 96MiB: must be 16MiB to 8GiB, a power of two`},
		{"card: {temperature: warm}\n", `f.yaml:1:21: card.temperature: "warm" is not a whole number; must be 0 to 127`},
		{"card: {tpcs: [4, x]}\n", `f.yaml:1:14: card.tpcs: "4,x" is not a list of numbers; write them with commas: 4,4,3,3`},
		{"card: {msi: yes}\n", `f.yaml:1:13: card.msi: "yes" is neither true nor false`},
		{"scheduler: {policy: fair}\n", `f.yaml:1:21: scheduler.policy: fair: must be auto, off, none, fifo, credit, band, timeslice or dfq`},
		{"card: {pci-device: 6d8}\n", `f.yaml:1:20: card.pci-device: "6d8" is not a PCI id; write four hexadecimal digits: 06d8`},
		{"socket: [a, b]\n", `f.yaml:1:9: socket: one value is wanted here`},
		{"socket:\n", `f.yaml:1:1: socket: has no value; give one, or remove the key. A list in braces needs brackets: [a, b]`},
		{"card: soft\n", `f.yaml:1:7: card: not a mapping; write keys and values: ` + card},
		{"# nothing\n\nsokcet: x\n", `f.yaml:3:1: sokcet: unknown key; did you mean "socket"? There are ` + top},
		{"card:\n  vramm: 1GiB\n", `f.yaml:2:3: card.vramm: unknown key; did you mean "vram"? There are ` + card},
		{"table_rate: 1GiB\n", `f.yaml:1:1: table_rate: unknown key; did you mean "limits.table-rate"?`},
		{"nothing-like-it: 1\n", `f.yaml:1:1: nothing-like-it: unknown key; there are ` + top},
		{"profiles: [{name: a, socket: a.sock}]\n", `f.yaml:1:30: profiles[0].socket: a profile has none; give it to each GPU`},
		{"gpus: a\n", `f.yaml:1:7: gpus: not a list; begin each element with a dash`},
		{"socket: a\n---\nsocket: b\n", `f.yaml:3:7: a second document; put everything into one`},
		{"socket: a\n\tcard: x\n", "f.yaml:2:1: found character '\t' that cannot start any token"},
		{"scheduler: {policy: dfq, policy: band}\n", `f.yaml:1:26: mapping key "policy" already defined at [1:13]`},
	} {
		_, err := read(c.file)
		require.EqualError(t, err, c.want, "%s", c.file)
		require.ErrorAs(t, err, new(*Error))
	}
}

// TestErrorsAtOnce: a file's errors are reported together, those of its GPUs, too.
func TestErrorsAtOnce(t *testing.T) {
	_, err := read("card: {vram: 1, colour: red}\ngpus:\n- {name: a, vram: 1MiB}\n- {nam: b}\n")
	require.ErrorContains(t, err, "f.yaml:1:14: card.vram: ")
	require.Less(t, strings.Index(err.Error(), "card.vram"), strings.Index(err.Error(), "card.colour"))
	for _, want := range []string{"f.yaml:1:17: card.colour: ", "f.yaml:3:19: gpus[0].vram: ", "f.yaml:4:4: gpus[1].nam: "} {
		require.ErrorContains(t, err, "\n"+want)
	}
	_, err = read("gpus:\n- {name: a}\n- {socket: b.sock}\n")
	require.EqualError(t, err, "f.yaml:2:3: gpus[0].socket: missing; say where QEMU shall attach, for example a.sock\n"+
		"f.yaml:2:3: gpus[0].vram: missing; say how much of the card's memory it gets, for example 256MiB\n"+
		"f.yaml:3:3: gpus[1].name: missing; give one, for example name=a\n"+
		"f.yaml:3:3: gpus[1].vram: missing; say how much of the card's memory it gets, for example 256MiB")
	_, err = read("", "name=a,vram=1,bar4=2")
	require.ErrorContains(t, err, "--gpu name=a: vram: ")
	require.ErrorContains(t, err, "\n--gpu name=a: bar4: unknown key; did you mean \"bar1\"? There are ")
}

func TestEmptyFileSaysNothing(t *testing.T) {
	for _, file := range []string{"", "\n", "# only a comment\n", "---\n"} {
		c := Default()
		require.NoError(t, c.Parse("f.yaml", []byte(file)), "%q", file)
		require.Equal(t, Default(), c)
	}
}

// TestFilesThatAreNone: a path that is no configuration file is named, and not read whole.
func TestFilesThatAreNone(t *testing.T) {
	folder := t.TempDir()
	for name, want := range map[string]string{
		"/dev/zero":        "--config: /dev/zero: larger than 2MiB, the most that is read",
		folder:             "--config: " + folder + ": is a directory",
		folder + "/f.yaml": "--config: " + folder + "/f.yaml: no such file or directory",
	} {
		require.EqualError(t, Default().ReadFile(name), want)
	}
}

// TestLists: a list may be words with commas or in brackets.
func TestLists(t *testing.T) {
	for _, tpcs := range []string{"[4, 4, 3, 2]", `"4,4,3,2"`, `["4", 4, 3, 2]`, `"[4, 4, 3, 2]"`} {
		c, err := read("card: {tpcs: " + tpcs + "}\n")
		require.NoError(t, err, tpcs)
		require.Equal(t, Counts{4, 4, 3, 2}, c.Card.TPCs)
	}
	c, err := read("", "name=a,socket=a.sock,vram=64MiB,tpcs=[4,4,3,3],bar-map=bar1, rom")
	require.NoError(t, err)
	require.Equal(t, Counts{4, 4, 3, 3}, c.GPUs[0].TPCs)
	require.Equal(t, "bar1,rom", c.GPUs[0].BARMap.String())
}

func TestSizeRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := Size(rapid.Uint64().Draw(t, "n") << rapid.IntRange(0, 50).Draw(t, "shift"))
		var got Size
		require.NoError(t, got.UnmarshalText([]byte(want.String())))
		require.Equal(t, want, got)
	})
}

// TestBoundsAreThoseOfTheirKeepers: a tag cannot name a constant, so what it repeats of one is
// held against it here.
func TestBoundsAreThoseOfTheirKeepers(t *testing.T) {
	for _, c := range []struct {
		of         any
		path, want string
	}{
		{new(Config), "card.vram", fmt.Sprintf("%v to %v, a multiple of 64MiB", Size(soft.MinVRAM), Size(soft.MaxVRAM))},
		{new(GPU), "vram", fmt.Sprintf("%v to %v, a multiple of 1MiB", leastGPU, Size(soft.MaxVRAM))},
		{new(GPU), "channels", fmt.Sprintf("1 to %d", gf100.Channels)},
		{new(GPU), "guaranteed", fmt.Sprintf("1 to %d", gf100.Channels)},
		{new(Config), "limits.guests", fmt.Sprintf("1 to %d", aggregator.MaxGuests)},
		{new(Config), "server.max-dma-mappings", fmt.Sprintf("%d to 65535", clientParts[ClientMappings].least)},
		{new(Config), "server.max-dma-memory", fmt.Sprintf("%v to 32TiB", Size(clientParts[ClientMemory].least))},
		{new(Config), "server.max-dma-alloc", fmt.Sprintf("%v to 8TiB", Size(clientParts[ClientAlloc].least))},
	} {
		i := slices.IndexFunc(options(c.of), func(o option) bool { return o.path == c.path })
		o := options(c.of)[i]
		require.Equal(t, c.want, Accepts(o.tag.Get("validate")), c.path)
	}
}

// FuzzParse: any file is read, or refused with an option named, and never a panic.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"", "socket: a\ncard: {vram: 1GiB, tpcs: [1, 2]}\n", "card: [", "&a card: *a\n", "<<: {socket: x}\n", "? [a]\n: b\n",
		"profiles: [{name: p, vram: 64MiB}]\ngpus: [{name: a, socket: a, profile: p}, {name: b, socket: b, vram: 64MiB, channels: 3, tpcs: [1]}]\n",
		"gpus: [1]\n", "gpus: {a: b}\n", "gpus: [{name: a, gpus: []}]\n", "card: !!str x\n", "a: &a [*a]\n", "socket: |\n  x\n  y\n", "card:\n  vram: 1\n---\n", "\xff\xfe", "socket: \"\\x00\"\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if _, err := read(string(data)); err != nil {
			require.ErrorAs(t, err, new(*Error))
		}
	})
}

// TestValuesReadAsDefaults: an option in force reads like its default, so that users can compare them.
func TestValuesReadAsDefaults(t *testing.T) {
	c := Default()
	schedule := c.Schedule()
	for _, s := range append(Settings(c), Settings(&schedule)...) {
		if s.Default != "" {
			require.Equal(t, s.Default, s.Value, s.Key)
		}
	}
	for text, want := range map[string]string{"500µs": "500us", "1500ms": "1.5s", "1m": "60s", "90s": "90s", "0": "0s"} {
		d, err := ParseTime(text)
		require.NoError(t, err)
		require.Equal(t, want, timeText(d))
	}
}

// TestInheritedSockets: a socket that the parent process opened needs no path, and must have the same if there is one.
func TestInheritedSockets(t *testing.T) {
	c := Default()
	c.Inherited = map[string]string{ControlSocket: "/run/control", GPUSocket + "a": "/run/a", GPUSocket + "b": "/run/b"}
	require.NoError(t, c.AddGPU("--gpu", "name=a,vram=64MiB"))
	require.NoError(t, c.AddGPU("--gpu", "name=b,vram=64MiB,socket=/run/b"))
	require.NoError(t, c.Check())
	require.Equal(t, []string{"/run/control", "/run/a", "/run/b"}, []string{c.Control, c.GPUs[0].Socket, c.GPUs[1].Socket})
	c.Inherited[GPUSocket+"b"] = "/run/other"
	require.EqualError(t, c.Check(), "--gpu name=b: socket: /run/b: the parent process opened /run/other for it (gpu-b in LISTEN_FDNAMES); leave this path out")
}

// TestInheritedSocketsKeepTheirAccess: an option that could have no effect is refused; one for all GPUs is for the others.
func TestInheritedSocketsKeepTheirAccess(t *testing.T) {
	c := Default()
	c.Inherited = map[string]string{ControlSocket: "/run/control", GPUSocket + "a": "/run/a"}
	require.NoError(t, c.Parse("f.yaml", []byte("access: {mode: 0660}\ncontrol-access: {mode: 0666}\n")))
	require.NoError(t, c.AddGPU("--gpu", "name=a,vram=64MiB,access.group=kvm"))
	const why = "has no effect: the parent process opened "
	require.EqualError(t, c.Check(), "f.yaml:2:24: control-access.mode: 0666: "+why+"/run/control (control in LISTEN_FDNAMES); say it there\n"+
		"--gpu name=a: access.group: kvm: "+why+"/run/a (gpu-a in LISTEN_FDNAMES); say it there")
}
