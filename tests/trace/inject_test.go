package trace

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	events "github.com/umbra-gpu/umbra/aggregator/trace"
	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/tests/rig"
	"github.com/umbra-gpu/umbra/vfiouser"
	"github.com/umbra-gpu/umbra/vfiouser/client"
)

func inject(t *testing.T, s *serve.Server, r api.InjectRequest) {
	t.Helper()
	_, err := s.Inject("a", r)
	require.NoError(t, err)
}

// copies is a guest that copies and waits for it.
type copies struct {
	*rig.Guest
	ch *guest.Channel
	t  *testing.T
}

func newCopies(t *testing.T, socket string) *copies {
	g := rig.Attach(t, socket, guest.Config{RAM: 1 << 20})
	g.Buffer(0x20_0000, 128<<10, guest.Big)
	return &copies{g, g.Channel(1, guest.ChannelConfig{}), t}
}

func (c *copies) submit() guest.Fence {
	c.t.Helper()
	require.NoError(c.t, c.ch.Copy(guest.CopyEngines[0], 0x21_0000, 0x20_0000, 4096))
	f, err := c.ch.Fence()
	require.NoError(c.t, err)
	return f
}

// TestOffBus: a GPU that fell off the bus reads as ones and takes no writes, so many times as were asked for.
func TestOffBus(t *testing.T) {
	s, socket := start(t, scheduled)
	c, err := client.Dial(socket, nil)
	require.NoError(t, err)
	defer c.Close()
	read := func() uint32 {
		v, err := c.Read32(vfiouser.RegionBAR0, 0x1700)
		require.NoError(t, err)
		return v
	}
	was := read()
	inject(t, s, api.InjectRequest{Kind: "off-bus", Count: 3})
	require.Equal(t, ^uint32(0), read())
	require.NoError(t, c.Write32(vfiouser.RegionBAR0, 0x1700, was+1))
	require.Equal(t, ^uint32(0), read())
	require.Equal(t, was, read())

	inject(t, s, api.InjectRequest{Kind: "off-bus", For: time.Hour})
	require.Equal(t, ^uint32(0), read())
	inject(t, s, api.InjectRequest{Kind: "none"})
	require.Equal(t, was, read())
	inject(t, s, api.InjectRequest{Kind: "off-bus", For: time.Millisecond})
	require.Eventually(t, func() bool { return read() == was }, rig.Patience, time.Millisecond)
}

// TestInterrupts: a lost interrupt never comes, and a late one comes late.
func TestInterrupts(t *testing.T) {
	s, socket := start(t, scheduled)
	c := newCopies(t, socket)
	others := []*guest.Channel{c.Channel(2, guest.ChannelConfig{}), c.Channel(3, guest.ChannelConfig{})}
	fault := func(i int) { // raises an interrupt, which nobody serves
		require.NoError(t, others[i].Copy(guest.CopyEngines[0], 0x9999_0000, 0x20_0000, 4096))
	}
	require.NoError(t, c.Service()) // what is pending hides what comes
	const delay = 300 * time.Millisecond
	inject(t, s, api.InjectRequest{Kind: "late-interrupt", For: time.Hour, Delay: delay})
	began, before := time.Now(), delivered(s)
	fault(0)
	require.Eventually(t, func() bool { return delivered(s) > before }, 10*time.Second, time.Millisecond)
	require.GreaterOrEqual(t, time.Since(began), delay-10*time.Millisecond)

	inject(t, s, api.InjectRequest{Kind: "lost-interrupt", For: time.Hour})
	time.Sleep(delay + 10*time.Millisecond) // for those that are late
	before = delivered(s)
	require.NoError(t, c.Service())
	fault(1)
	require.Eventually(t, func() bool { return faults(t, s) == 2 }, 10*time.Second, time.Millisecond)
	time.Sleep(10 * time.Millisecond)
	require.Equal(t, before, delivered(s))
}

// delivered is how many interrupts the GPU's client got.
func delivered(s *serve.Server) uint64 {
	g, _ := s.Show("a")
	return g.Interrupts
}

func faults(t *testing.T, s *serve.Server) uint64 {
	g, err := s.Show("a")
	require.NoError(t, err)
	return g.Counts["mmu_faults"]
}

// TestHungEngine: work that is submitted does not begin before the time is over, and then is done.
func TestHungEngine(t *testing.T) {
	for _, more := range []string{"server: {inject: true}\nscheduler: {policy: 'off'}\n", scheduled} {
		s, socket := start(t, more)
		c := newCopies(t, socket)
		const long = 300 * time.Millisecond
		began := time.Now()
		inject(t, s, api.InjectRequest{Kind: "hung-engine", For: long})
		require.NoError(t, c.Wait(c.submit()))
		require.GreaterOrEqual(t, time.Since(began), long)
		began = time.Now()
		require.NoError(t, c.Wait(c.submit()))
		require.Less(t, time.Since(began), long)
	}
}

// TestTranslationFault: a channel ends with a fault that its driver hears of, another one goes on, and the recording has it.
func TestTranslationFault(t *testing.T) {
	s, socket := start(t, scheduled)
	c := newCopies(t, socket)
	other := c.Channel(2, guest.ChannelConfig{})
	require.NoError(t, c.ch.Finish())
	var file bytes.Buffer
	end := begin(t, s, api.TraceRequest{}, &file)
	inject(t, s, api.InjectRequest{Kind: "translation-fault", Count: 1})
	require.NoError(t, c.ch.Copy(guest.CopyEngines[0], 0x21_0000, 0x20_0000, 4096))
	require.Error(t, c.ch.Finish())
	require.NotNil(t, c.Events()[0].Fault)
	require.NoError(t, other.Copy(guest.CopyEngines[1], 0x21_0000, 0x20_0000, 4096))
	require.NoError(t, other.Finish())
	require.Equal(t, uint64(1), faults(t, s))
	_ = end()
	stats, err := open(t, file.Bytes()).Stats("")
	require.NoError(t, err)
	require.Equal(t, uint64(1), stats.Kinds[events.Fault.String()])
}

// TestInjectRefused: nothing is planted on a server that does not allow it, nor what makes no sense.
func TestInjectRefused(t *testing.T) {
	s, _ := start(t, "")
	_, err := s.Inject("a", api.InjectRequest{Kind: "off-bus"})
	require.ErrorContains(t, err, "start it with --inject")
	s, _ = start(t, scheduled)
	for _, c := range []struct {
		r    api.InjectRequest
		want string
	}{
		{api.InjectRequest{Kind: "of-bus"}, `did you mean "off-bus"`},
		{api.InjectRequest{Kind: "hung-engine", Count: 1}, "a hung engine ends by time"},
		{api.InjectRequest{Kind: "off-bus", For: 2 * time.Hour}, "must be up to 1h0m0s"},
		{api.InjectRequest{Kind: "off-bus", Delay: time.Second}, "for a late-interrupt alone"},
	} {
		_, err := s.Inject("a", c.r)
		require.ErrorContains(t, err, c.want)
	}
	_, err = s.Inject("b", api.InjectRequest{Kind: "off-bus"})
	require.ErrorContains(t, err, "there is no GPU b")
}
