package aggregator

import (
	"cmp"
	"reflect"
	"sync/atomic"

	"github.com/umbra-gpu/umbra/aggregator/channels"
	"github.com/umbra-gpu/umbra/aggregator/shadow"
	"github.com/umbra-gpu/umbra/aggregator/window"
)

// GuestStats counts a guest's requests and their results. Any goroutine may read them. The tag
// count or rule is the name of a counter, and help describes it to users.
type GuestStats struct {
	Doorbells     atomic.Uint64 `count:"doorbells" help:"Times that the guest announced new work in a channel."`
	Preempts      atomic.Uint64 `count:"preempts" help:"Requests of the guest to take a channel off the card."`
	Invalidates   atomic.Uint64 `count:"invalidates" help:"TLB invalidates that the guest requested."`
	EngineEvents  atomic.Uint64 `count:"engine_events" help:"Completion events of engines that were delivered to the guest."`
	Runaways      atomic.Uint64 `count:"runaways" help:"Requests that ran longer than limits.request, so that their channel was ended; raise limits.request if the guest needs such work."`
	Unmaps        atomic.Uint64 `count:"unmaps" help:"Ranges of memory that the client unmapped."`
	UnmapTime     atomic.Int64  // ns until the card no longer used them; not in Counts
	Quarantines   atomic.Uint64 `count:"quarantines" help:"Times that the guest was quarantined, so that nothing of it reached the card until a reset of its GPU; umbra gpu list shows the reason."`
	ScrubFailures atomic.Uint64 `count:"scrub_failures" help:"Failures to clear the guest's memory after its client left, so that the GPU refuses clients until it succeeds; report a bug."`
	BadPut        atomic.Uint64 `rule:"bad_put" help:"Doorbells with a GP_PUT outside its ring or moved back; only a scheduler checks this."`

	Channels channels.Stats
	Shadow   shadow.Stats
	Windows  window.Stats
}

// A Count is one counter of a guest by its name.
type Count struct {
	Name string
	N    uint64
	Rule bool // it counts violations of a rule
	Help string
}

// Counts returns every counter of the guest and its rooms, without times.
func (s *GuestStats) Counts() (list []Count) {
	for _, stats := range []any{s, &s.Channels, &s.Channels.Faults, &s.Shadow, &s.Windows} {
		v := reflect.ValueOf(stats).Elem()
		for i := range v.NumField() {
			if n, ok := v.Field(i).Addr().Interface().(*atomic.Uint64); ok {
				tag := v.Type().Field(i).Tag
				rule := tag.Get("rule")
				list = append(list, Count{cmp.Or(rule, tag.Get("count")), n.Load(), rule != "", tag.Get("help")})
			}
		}
	}
	for _, c := range s.Windows.Mapped.Counts() {
		list = append(list, Count{Name: c.Name, N: c.N, Help: c.Help})
	}
	return list
}
