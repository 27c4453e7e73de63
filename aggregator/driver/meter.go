package driver

import (
	"encoding/binary"
	"sync"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// A card that does not count what its channels use is metered by what its registers show: which
// channels are on a PBDMA, wait for a semaphore or have nothing to do, whom each engine serves, and
// GP_GET. The meter looks at them when it is asked, when a channel reports an event, and by a timer:
// lookMin after a channel was started, then whenever an eighth of the time since has passed, up to
// lookMax. A channel is charged until the look that finds its work ended, for it kept the engine from
// others until then. So a request costs up to an eighth or lookMin more than it took.
//
// The registers do not show that an entry ended while its channel goes on with the next one: it counts
// with that. Work between two waits for semaphores that no look sees is not charged.

// Times between two looks at a channel whose state does not change.
const (
	lookMin = 50 * time.Microsecond
	lookMax = 250 * time.Millisecond
)

// acquireLooks is how many looks in a row must not find a failed semaphore acquire before a channel
// counts as waiting no longer: the card tries again and again, and seems to work meanwhile.
const acquireLooks = 3

// meter implements [card.Meter]. A nil meter does nothing.
type meter struct {
	driver *Driver
	wake   chan struct{} // capacity 1: look at the card

	mu       sync.Mutex
	onUse    func()    // nil if nobody meters
	at       time.Time // of the last look, before it read the channels
	fresh    time.Time // until when Use returns its result
	stale    bool      // something was done to a channel since
	channels [gf100.Channels]*usage
	serving  [card.MaxEngines]*usage
	charged  [card.MaxEngines]time.Duration // to all channels, in the look under way
}

// usage is what the meter knows of a channel.
type usage struct {
	card.Use
	ch      *channel
	mask    uint32 // of an index of the ring
	put     uint32
	get     uint32 // at the last look
	retired uint64 // entries, by GP_GET

	enabled bool
	active  bool          // a look may find something new
	since   time.Time     // when it was started or changed
	engine  int           // that worked for it last
	works   bool          // at the last look, or was started since
	begins  bool          // it was started, and has not been seen at work
	from    time.Time     // until when it was charged
	more    time.Duration // to be charged by the look under way
	waits   int           // looks until it waits for a semaphore no longer
}

func newMeter(d *Driver) *meter {
	return &meter{driver: d, wake: make(chan struct{}, 1), at: time.Now()}
}

// run looks at the card until the driver closes.
func (m *meter) run() {
	defer m.driver.listening.Done()
	alarm := time.NewTimer(time.Hour)
	defer alarm.Stop()
	for {
		select {
		case <-m.driver.closing:
			return
		case <-m.wake:
		case <-alarm.C:
		}
		m.mu.Lock()
		next := m.look()
		m.mu.Unlock()
		alarm.Reset(next)
	}
}

// OnUse implements [card.Meter].
func (m *meter) OnUse(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.onUse = f
}

// Use implements [card.Meter].
func (m *meter) Use(id uint32) card.Use {
	m.mu.Lock()
	defer m.mu.Unlock()
	u := m.channels[id%gf100.Channels]
	if u == nil {
		return card.Use{Barred: true}
	}
	if m.stale || u.active && time.Now().After(m.fresh) {
		m.look()
	}
	return u.Use
}

// add begins to meter a new channel. GP_GET that differs from that of the saved state tells of an
// entry that was fetched and has not ended.
func (m *meter) add(ch *channel, c *card.ChannelConfig) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.channels[ch.id] = &usage{
		ch: ch, mask: 1<<c.Ring.Log2 - 1, put: c.Put, get: c.Progress.GPGet,
		Use: card.Use{Barred: true, Underway: c.Progress.GPGet != c.State.GPGet},
	}
}

func (m *meter) remove(ch *channel) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.channels[ch.id] = nil
}

// enabled, submitted and reported tell of what was done to a channel, or what it did.
func (m *meter) enabled(ch *channel, on bool) {
	m.note(ch.id, func(u *usage) {
		u.enabled = on
		u.start()
	})
}

func (m *meter) submitted(ch *channel, put uint32) {
	m.note(ch.id, func(u *usage) {
		u.put = put
		u.start()
	})
}

func (m *meter) reported(id uint32) { m.note(id, func(*usage) {}) }

func (m *meter) note(id uint32, what func(u *usage)) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	u := m.channels[id]
	if u == nil || m.onUse == nil {
		return
	}
	what(u)
	u.active, m.stale = true, true
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// start has a channel work from now on if it is enabled.
func (u *usage) start() {
	if now := time.Now(); u.enabled && !u.works {
		u.works, u.begins, u.from, u.since = true, true, now, now
	}
}

// look looks at all active channels, and returns when to look again. Its result stays fresh for as long as
// the look took, and at least lookMin: a caller that asks for one channel after another causes one look.
// m.mu is held.
func (m *meter) look() (next time.Duration) {
	next = time.Hour
	if m.onUse == nil {
		return next
	}
	begun := time.Now()
	m.readEngines()
	now, changed := time.Now(), false
	for _, u := range m.channels {
		if u != nil && u.active {
			changed = m.lookAt(u, now) || changed
			next = min(next, max(lookMin, min(now.Sub(u.since)/8, lookMax)))
		}
	}
	for _, u := range m.channels {
		if u != nil && u.more > 0 { // the engine did not work for longer than there was time
			all := m.charged[u.engine]
			u.Busy[u.engine] += time.Duration(float64(u.more) * float64(min(all, now.Sub(m.at))) / float64(all))
			u.more = 0
		}
	}
	m.at, m.stale, m.charged = now, false, [card.MaxEngines]time.Duration{}
	end := time.Now()
	m.fresh = end.Add(max(lookMin, end.Sub(begun)))
	if changed {
		m.onUse()
	}
	return next
}

// readEngines reads whom the engines serve.
func (m *meter) readEngines() {
	for i, e := range gf100.Executing {
		m.serving[i] = nil
		if v := m.driver.rd(regEngineStatus + uint32(e)*4); v&gf100.EngineBusy != 0 {
			if u := m.channels[v&(gf100.Channels-1)]; u != nil {
				m.serving[i], u.engine = u, i
			}
		}
	}
}

// lookAt looks at a channel, and reports whether its use changed.
func (m *meter) lookAt(u *usage, now time.Time) bool {
	was := u.Use
	v := m.driver.rd(u.ch.reg(regChannel))
	moved := u.readGet()
	u.enabled = v&gf100.ChannelEnabled != 0 // a stopped one shows no status, whatever is left of its work
	u.Running = v&gf100.ChannelBusy != 0
	u.Idle = u.enabled && v&(gf100.ChannelBusy|gf100.ChannelStatus) == 0 && u.get == u.put
	switch {
	case v&gf100.ChannelStatus == gf100.ChannelAcquire && !u.Running:
		u.waits = acquireLooks
	case moved || u.Idle || m.serving[u.engine] == u:
		u.waits = 0
	case u.waits > 0 && now.Sub(m.at) >= lookMin:
		u.waits--
	}
	u.Barred = u.waits > 0 || !u.enabled
	switch {
	case u.Idle:
		u.Ended = u.retired
	case u.retired > 0: // the last one may be on an engine
		u.Ended = max(u.Ended, u.retired-1)
	}
	u.Underway = !u.Idle && u.retired > u.Ended
	m.charge(u, now, moved)

	changed := u.Ended != was.Ended || u.Idle != was.Idle || u.Barred != was.Barred || u.Underway != was.Underway ||
		was.Running && !u.Running && !u.enabled
	if changed || u.waits > 0 && u.waits < acquireLooks {
		u.since = now
	}
	u.active = u.Running || u.enabled && !u.Idle
	return changed
}

// readGet reads GP_GET, and reports whether it moved.
func (u *usage) readGet() bool {
	var b [4]byte
	u.ch.driver.ReadVRAM(u.ch.userd+gf100.USERDGPGet, b[:])
	get := binary.LittleEndian.Uint32(b[:])
	n := (get - u.get) & u.mask
	u.get, u.retired = get, u.retired+uint64(n)
	return n > 0
}

// charge charges a channel for the time since it was started or looked at. One that began or ceased to
// run by itself, in turn with others, did so in the middle.
func (m *meter) charge(u *usage, now time.Time, moved bool) {
	works := u.Running && u.waits == 0
	d := now.Sub(m.at)
	if u.works && u.from.After(m.at) {
		d = now.Sub(u.from)
	}
	switch {
	case u.works && (works || u.Idle || moved):
	case works, u.works && !u.begins:
		d /= 2
	default:
		d = 0
	}
	u.more = d
	m.charged[u.engine] += d
	u.begins = u.begins && !works && !u.Idle && !moved
	u.works, u.from = works || u.begins, now
}
