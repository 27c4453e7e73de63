package plugin

import (
	"maps"
	"slices"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
)

// The capacities of a card, of which each claim consumes some.
const (
	capVRAM     resourceapi.QualifiedName = "vram"     // bytes for guests' drivers
	capWeight   resourceapi.QualifiedName = "weight"   // a claim of w has at least w/MostWeight of the card's time
	capChannels resourceapi.QualifiedName = "channels" // that a claim can count on
)

const (
	mib = int64(1) << 20

	leastChannels = 4
	defaultWeight = 100
)

var (
	mostGuests = int64(config.Default().Limits.Guests)
	// MostWeight is the sum of the weights on a card: each guest has at least its even share unless a claim asks for less.
	MostWeight = mostGuests * defaultWeight
)

// device describes a card, on which the prepared GPUs have some channels each. It is false if no GPU fits onto it.
func (p *Plugin) device(card string, s *api.Status, prepared map[string]int64) (resourceapi.Device, bool) {
	least, most, unit := sizes(p.Chip)
	// GPUs that others added are none of the scheduler's business, and what they have is not its to give.
	free, channels := int64(s.Card.VRAMFree), int64(s.Card.ChannelsFree)
	for _, g := range s.GPUs {
		if owner(g.Name) != "" {
			free += int64(g.VRAM + g.Tables)
			channels += prepared[g.Name]
		}
	}
	vram := room(free, least) / unit * unit
	if vram < least+unit || channels <= leastChannels {
		return resourceapi.Device{}, false
	}
	shared := true
	return resourceapi.Device{
		Name:                     card,
		AllowMultipleAllocations: &shared,
		Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{
			"chip": {StringValue: &p.Chip},
			"kind": {StringValue: &s.Card.Kind},
		},
		Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
			capVRAM:     consumable(vram, resource.BinarySI, max(least, min(vram, 256*mib)/unit*unit), least, min(vram, most), unit),
			capWeight:   consumable(MostWeight, resource.DecimalSI, defaultWeight, 1, MostWeight, 1),
			capChannels: consumable(channels, resource.DecimalSI, leastChannels, leastChannels, channels, 1),
		},
	}, true
}

// sizes are config.VRAMOf in the type of quantities.
func sizes(chip string) (least, most, unit int64) {
	l, m, u := config.VRAMOf(chip)
	return int64(l), int64(m), int64(u)
}

// room is how much of a card's memory claims can have in whatever sizes: a GPU's page tables and what its chip
// reserves take an eighth of its memory at most, and 80 MiB at most.
func room(free, least int64) int64 {
	return max(free/9*8, free-min(mostGuests, free/least)*80*mib)
}

func consumable(value int64, format resource.Format, usual, least, most, step int64) resourceapi.DeviceCapacity {
	quantity := func(n int64) *resource.Quantity { return resource.NewQuantity(n, format) }
	return resourceapi.DeviceCapacity{Value: *quantity(value), RequestPolicy: &resourceapi.CapacityRequestPolicy{
		Default:    quantity(usual),
		ValidRange: &resourceapi.CapacityRequestPolicyRange{Min: quantity(least), Max: quantity(most), Step: quantity(step)},
	}}
}

// resources are what the node publishes.
func (p *Plugin) resources() *resourceslice.DriverResources {
	s := resourceslice.Slice{}
	for _, card := range slices.Sorted(maps.Keys(p.devices)) {
		s.Devices = append(s.Devices, p.devices[card])
	}
	return &resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{p.Node: {Slices: []resourceslice.Slice{s}}}}
}
