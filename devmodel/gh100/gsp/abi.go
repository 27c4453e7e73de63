package gsp

// place is where a member of a structure lies: its offset and size in bytes. The elements of an array
// are stride bytes apart.
type place struct{ at, size, stride int }

func u8(at int) place  { return place{at, 1, 0} }
func u16(at int) place { return place{at, 2, 0} }
func u32(at int) place { return place{at, 4, 0} }
func u64(at int) place { return place{at, 8, 0} }

func (m place) every(stride int) place { return place{m.at, m.size, stride} }

// get reads the member of the structure that p begins with.
func (m place) get(p []byte) (v uint64) {
	for i := range m.size {
		v |= uint64(p[m.at+i]) << (8 * i)
	}
	return v
}

func (m place) get32(p []byte) uint32 { return uint32(m.get(p)) }

func (m place) put(p []byte, v uint64) { m.putItem(p, 0, v) }

// putItem writes element i of an array.
func (m place) putItem(p []byte, i int, v uint64) {
	for n := range m.size {
		p[m.at+i*m.stride+n] = byte(v >> (8 * n))
	}
}

// abi is a release of the firmware: the sizes of the structures of calls, controls and classes, and the
// places of the members that are read or written. A member is named after its structure.
type abi struct {
	release string

	freeSize, allocSize, controlSize, memorySize, staticSize, unloadSize, barSize, registrySize, spaceSize, channelSize,
	directorySize, unsetSize, copySize, gpcsSize, tpcsSize, vectorsSize, enginesSize, contextsSize, zcullSize, promoteSize,
	methodsSize, falconsSize, bindSize, scheduleSize, stopSize, saveSize, memsysSize, compbitsSize, rcSize, logSize int

	freeClient, freeObject, freeStatus                                                place
	allocClient, allocParent, allocObject, allocClass, allocStatus, allocParams       place
	controlClient, controlObject, controlNumber, controlStatus, controlParams         place
	memoryClient, memoryParent, memoryObject, memoryClass, memoryPages                place
	staticRegions, staticBase, staticLimit, staticReserved, staticCompressed          place
	staticISO, staticBAR1, staticBAR2, staticClient, staticDevice, staticSubdevice    place
	staticHeap, staticFRTS                                                            place
	unloadSuspend, unloadLevel, barWindow, barEntry, registryBytes                    place
	spaceFlags                                                                        place
	channelRing, channelEntries, channelFlags, channelSpace, channelEngine            place
	channelInstance, channelInstanceIn, channelUSERD, channelUSERDIn, channelInternal place
	directoryRoot, directoryFlags, directorySpace, unsetSpace                         place
	copyLevels, copyAddress, copyAperture                                             place
	gpcsMask, tpcsGPC, tpcsMask                                                       place
	vectorsCount, vectorsEngine, vectorsStall, vectorsNonStall                        place
	enginesCount, enginesDesc, enginesType, enginesRunlist, enginesBase               place
	contextsBytes, contextsAlign, zcullWord                                           place
	methodsBytes, bindEngine, scheduleOn, stopOn                                      place
	rcEngine, rcChannel, rcType, rcAddress, rcFault                                   place
	logType, logRunlist, logChannel, logText                                          place
}

// Lengths of arrays, in all releases.
const (
	maxContexts = 26
	maxZcull    = 10
	maxLogText  = 256
)
