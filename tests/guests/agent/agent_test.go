package agent

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/tests/guests/drm"
	"github.com/umbra-gpu/umbra/tests/guests/gpu"
	"github.com/umbra-gpu/umbra/tests/lab/proto"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// card is a device that answers questions and has no channel to give.
type card struct {
	gpu.Device
	ticks uint64
}

func (c *card) Version() (drm.Version, error) {
	return drm.Version{Name: "nouveau", Major: 1, Minor: 4}, nil
}
func (c *card) Close() error { return nil }
func (c *card) NewChannel() (gpu.Channel, error) {
	return nil, &drm.Error{Op: "CHANNEL_ALLOC", Errno: unix.ENODEV}
}
func (c *card) Param(p uint64) (uint64, error) {
	switch p {
	case drm.ParamPTimer:
		c.ticks += uint64(100 * time.Millisecond)
		return c.ticks, nil
	case drm.ParamVRAMUsed:
		return 0, &drm.Error{Op: "GETPARAM", Errno: unix.EINVAL}
	}
	return 0xc0, nil
}

// line is the lab's end of the serial port.
type line struct {
	t   *testing.T
	in  *io.PipeWriter
	out *bufio.Scanner
	end chan error
}

func serve(t *testing.T, sys *System, env *gpu.Env) *line {
	inR, inW := io.Pipe()
	outR, outW := io.Pipe()
	l := &line{t: t, in: inW, out: bufio.NewScanner(outR), end: make(chan error, 1)}
	l.out.Buffer(nil, proto.MaxLine)
	s := New(sys, env, outW)
	go func() { l.end <- s.Serve(inR) }()
	t.Cleanup(func() {
		go func() { _, _ = io.Copy(io.Discard, outR) }()
		require.NoError(t, inW.Close())
		require.NoError(t, <-l.end)
		require.NoError(t, outW.Close())
	})
	return l
}

func (l *line) send(text string) {
	_, err := io.WriteString(l.in, text+"\n")
	require.NoError(l.t, err)
}

func (l *line) reply() proto.Reply {
	require.True(l.t, l.out.Scan(), "no reply")
	var r proto.Reply
	require.NoError(l.t, json.Unmarshal(l.out.Bytes(), &r))
	return r
}

func (l *line) call(text string) proto.Reply {
	l.send(text)
	return l.reply()
}

func fakeEnv() *gpu.Env {
	return &gpu.Env{Release: "6.12.1", Open: func(node string) (gpu.Device, error) {
		if node == "/dev/dri/none" {
			return nil, errors.New("no such node")
		}
		return &card{}, nil
	}}
}

func TestDispatch(t *testing.T) {
	l := serve(t, &System{Root: t.TempDir()}, fakeEnv())
	l.send("noise")
	l.send("{}")
	l.send("")
	r := l.call(`{"id":1,"cmd":"ping"}`)
	require.Equal(t, proto.Reply{ID: 1, OK: true, Result: json.RawMessage("{}")}, r)

	r = l.call(`{"id":2,"cmd":"fly"}`)
	require.False(t, r.OK)
	require.Equal(t, `no command "fly"`, r.Error)

	r = l.call(`{"id":3,"cmd":"m2mf","args":{"sede":1}}`)
	require.False(t, r.OK)
	require.Contains(t, r.Error, "sede")

	r = l.call(`{"id":4,"cmd":"info"}`)
	require.True(t, r.OK, r.Error)
	var info proto.InfoResult
	require.NoError(t, json.Unmarshal(r.Result, &info))
	require.Equal(t, "nouveau", info.Driver)
	require.EqualValues(t, 0xc0, info.Chipset)
	require.Equal(t, []string{"vram_used"}, info.Unknown)

	r = l.call(`{"id":5,"cmd":"m2mf","args":{"node":"/dev/dri/none"}}`)
	require.False(t, r.OK)
	require.Equal(t, "no such node", r.Error)

	r = l.call(`{"id":6,"cmd":"fences"}`)
	require.False(t, r.OK)
	require.Contains(t, r.Error, "CHANNEL_ALLOC")

	r = l.call(`{"id":7,"cmd":"load-stop"}`)
	require.False(t, r.OK)
	require.Equal(t, "no load is running", r.Error)
}

// A slow command does not hold up a quick one.
func TestSideBySide(t *testing.T) {
	env, answer := fakeEnv(), make(chan struct{})
	env.Open = func(string) (gpu.Device, error) { <-answer; return &card{}, nil }
	l := serve(t, &System{Root: t.TempDir()}, env)
	l.send(`{"id":1,"cmd":"info"}`)
	require.EqualValues(t, 2, l.call(`{"id":2,"cmd":"ping"}`).ID)
	close(answer)
	require.EqualValues(t, 1, l.reply().ID)
}

func TestPanicIsAReply(t *testing.T) {
	env := fakeEnv()
	env.Open = func(string) (gpu.Device, error) { panic("a bug") }
	l := serve(t, &System{Root: t.TempDir()}, env)
	r := l.call(`{"id":9,"cmd":"info"}`)
	require.False(t, r.OK)
	require.Contains(t, r.Error, "a bug")
	require.True(t, l.call(`{"id":10,"cmd":"ping"}`).OK)
}

// Every command of the protocol is there.
func TestCommandsExist(t *testing.T) {
	s := New(&System{}, fakeEnv(), io.Discard)
	for _, c := range []string{
		proto.CmdPing, proto.CmdKmsg, proto.CmdModprobe, proto.CmdRmmod, proto.CmdPoweroff, proto.CmdReboot,
		proto.CmdMark, proto.CmdBind, proto.CmdDRI, proto.CmdPCI, proto.CmdHwmon, proto.CmdInterrupts, proto.CmdSleep, proto.CmdSuspend,
		proto.CmdInfo, proto.CmdObjects, proto.CmdCopy, proto.CmdM2MF, proto.CmdCE, proto.CmdSemaphores, proto.CmdFences,
		proto.CmdEvict, proto.CmdBOMoves, proto.CmdFault, proto.CmdIllegal, proto.CmdStorm, proto.CmdLoad, proto.CmdLoadStop, proto.CmdBench, proto.CmdRegisters,
		proto.CmdContexts, proto.CmdTables, proto.CmdBandwidth,
	} {
		require.Contains(t, s.commands, c)
	}
}

func TestParseRecord(t *testing.T) {
	r, err := parseRecord("4,339,5140900,-;nouveau 0000:00:03.0: channel 3 killed!\n SUBSYSTEM=pci\n")
	require.NoError(t, err)
	require.Equal(t, proto.KmsgRecord{Seq: 339, Level: 4, USec: 5140900, Text: "nouveau 0000:00:03.0: channel 3 killed!"}, r)
	r, err = parseRecord("14,340,6,-,caller=T1;lab: a; b")
	require.NoError(t, err)
	require.Equal(t, proto.KmsgRecord{Seq: 340, Level: 6, Facility: 1, USec: 6, Text: "lab: a; b"}, r)
	for _, bad := range []string{"", "4,3", "x,1,2,-;t", "4,1,2,-"} {
		_, err := parseRecord(bad)
		require.Error(t, err, bad)
	}
	rapid.Check(t, func(t *rapid.T) { _, _ = parseRecord(rapid.String().Draw(t, "text")) })
}

func TestClosure(t *testing.T) {
	deps := "kernel/a.ko:\nkernel/drm/drm-kms-helper.ko: kernel/drm.ko kernel/a.ko\nkernel/nouveau.ko.xz: kernel/drm/drm-kms-helper.ko kernel/drm.ko kernel/a.ko\n"
	files, err := closure(deps, "nouveau")
	require.NoError(t, err)
	require.Equal(t, []string{"kernel/a.ko", "kernel/drm.ko", "kernel/drm/drm-kms-helper.ko", "kernel/nouveau.ko.xz"}, files)
	files, err = closure(deps, "drm_kms_helper")
	require.NoError(t, err)
	require.Len(t, files, 3)
	_, err = closure(deps, "nvidia")
	require.ErrorContains(t, err, "nvidia")
}

func TestCommandLineOptions(t *testing.T) {
	line := "console=ttyS0 nouveau.config=NvMSI=0,NvBios=PROM drm_kms_helper.x=1 nouveau.debug=info root=/dev/vda.1 nouveau."
	require.Equal(t, []string{"config=NvMSI=0,NvBios=PROM", "debug=info"}, commandLineOptions(line, "nouveau"))
	require.Equal(t, []string{"x=1"}, commandLineOptions(line, "drm_kms_helper"))
	require.Empty(t, commandLineOptions(line, "drm"))
}

func TestParseInterrupt(t *testing.T) {
	l, ok := parseInterrupt(" 24:        123          7  PCI-MSI-0000:00:03.0    0-edge      nvkm", 2, []string{"nvkm"})
	require.True(t, ok)
	require.Equal(t, proto.InterruptLine{IRQ: "24", Chip: "PCI-MSI-0000:00:03.0 0-edge nvkm", Count: 130}, l)
	_, ok = parseInterrupt(" 10:  5  IO-APIC  10-fasteoi   virtio0, nvkm", 1, []string{"nvkm"})
	require.True(t, ok)
	_, ok = parseInterrupt("  4:  5  IO-APIC  4-edge   ttyS0", 1, []string{"nvkm"})
	require.False(t, ok)
	_, ok = parseInterrupt("ERR:  0", 1, []string{"nvkm"})
	require.False(t, ok)
}

func TestPCI(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, pciDevices, "0000:00:03.0")
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "msi_irqs"), 0o755))
	config := make([]byte, 256)
	config[0x06], config[0x34] = 0x10, 0x60
	copy(config[0x60:], []byte{1, 0x68})
	copy(config[0x68:], []byte{5, 0x78})
	copy(config[0x78:], []byte{0x10, 0})
	for name, text := range map[string]string{
		"vendor": "0x10de\n", "device": "0x06d8\n", "subsystem_vendor": "0x10de\n", "subsystem_device": "0x076f\n",
		"class": "0x030200\n", "revision": "0xa3\n", "irq": "24\n", "config": string(config), "msi_irqs/24": "msi\n",
		"resource": "0x00000000fd000000 0x00000000fdffffff 0x0000000000040200\n" +
			"0x0000000800000000 0x0000000807ffffff 0x000000000014220c\n" +
			"0x0 0x0 0x0\n0x0 0x0 0x0\n0x0 0x0 0x0\n0xc000 0xc07f 0x40101\n0x1 0x2 0x3\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	s := &System{Root: root}
	res, err := s.PCI(proto.PCIArgs{Vendor: 0x10de})
	require.NoError(t, err)
	require.Len(t, res.Functions, 1)
	f := res.Functions[0]
	require.EqualValues(t, 0x06d8, f.Device)
	require.Equal(t, "msi", f.IRQMode)
	require.Equal(t, []proto.PCICap{{ID: 1, Offset: 0x60}, {ID: 5, Offset: 0x68}, {ID: 0x10, Offset: 0x78}}, f.Capabilities)
	require.Equal(t, []proto.PCIBAR{
		{Index: 0, Start: 0xfd000000, Size: 16 << 20, Flags: 0x40200},
		{Index: 1, Start: 0x8_0000_0000, Size: 128 << 20, Flags: 0x14220c},
		{Index: 5, Start: 0xc000, Size: 128, Flags: 0x40101},
	}, f.BARs)
	address, err := s.card()
	require.NoError(t, err)
	require.Equal(t, "0000:00:03.0", address)
	_, err = s.Bind(proto.BindArgs{Action: "kick"})
	require.ErrorContains(t, err, "kick")
}

// A capability list that loops must not hang the agent.
func TestCapabilityLoop(t *testing.T) {
	config := make([]byte, 256)
	config[0x06], config[0x34] = 0x10, 0x60
	config[0x60], config[0x61] = 1, 0x60
	require.Len(t, parseCapabilities(config), 48)
	require.Empty(t, parseCapabilities(nil))
}

func TestHwmon(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "sys/class/hwmon/hwmon0")
	require.NoError(t, os.MkdirAll(dir, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "name"), []byte("nouveau\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "temp1_input"), []byte("42000\n"), 0o600))
	res, err := (&System{Root: root}).Hwmon()
	require.NoError(t, err)
	require.Equal(t, []proto.HwmonSensor{{Device: "nouveau", Name: "temp1", Value: 42000}}, res.Sensors)
}
