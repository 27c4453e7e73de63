package config

import "fmt"

const (
	// clientsPart of a process's mappings are for the memory of all clients: half of what the
	// card's memory leaves. A server without any left cannot even grow its heap.
	clientsPart = 8
	// leastMappings are the fewest with which a machine is of any use, as the tag has it.
	leastMappings = 8

	mappingsKey = "server.max-dma-mappings"
)

// ClientMappings is how many of the process's mappings the memory of one client may take,
// where the system lets it have so many (vm.max_map_count). Each guest that there may be has
// an even part, so that none can take what the others, or the server, will want; alone is one
// that has the whole card.
func (l *Layer) ClientMappings(system int, alone bool) (int, error) {
	guests, others := l.Config.Limits.Guests, fmt.Sprintf(" for each of %d guests (%s)", l.Config.Limits.Guests, l.Where("limits.guests"))
	if alone {
		guests, others = 1, ""
	}
	n, all := l.Config.Server.MaxDMAMappings, system/clientsPart
	each := all / guests
	switch unsaid := l.isDefault(mappingsKey); {
	case n <= each:
		return n, nil
	case unsaid && each >= leastMappings:
		return each, nil
	case unsaid:
		n = leastMappings
	}
	var remedy string
	if each >= leastMappings {
		remedy = fmt.Sprintf("say %d or less, ", each)
	}
	if !alone {
		remedy += "lower limits.guests, "
	}
	if remedy != "" {
		remedy += "or "
	}
	remedy += fmt.Sprintf("raise the sysctl vm.max_map_count to %d", n*guests*clientsPart)
	return 0, &Error{Where: l.Where(mappingsKey), Value: fmt.Sprint(n), Reason: fmt.Sprintf(
		"too many mappings of this process%s: the memory of all clients may take %d, an eighth of the %d that the system lets it have; %s", others, all, system, remedy)}
}
