package gsp

// abi570 is release 570.144. Where drivers' headers have no size, it is the least that has all members.
var abi570 = abi{
	release: "570.144",

	freeSize: 0x10, freeClient: u32(0x00), freeObject: u32(0x08), freeStatus: u32(0x0c),

	allocSize: 0x20, allocClient: u32(0x00), allocParent: u32(0x04), allocObject: u32(0x08), allocClass: u32(0x0c),
	allocStatus: u32(0x10), allocParams: u32(0x14),

	controlSize: 0x18, controlClient: u32(0x00), controlObject: u32(0x04), controlNumber: u32(0x08),
	controlStatus: u32(0x0c), controlParams: u32(0x10),

	memorySize: 0x38, memoryClient: u32(0x00), memoryParent: u32(0x04), memoryObject: u32(0x08), memoryClass: u32(0x0c),
	memoryPages: u32(0x28),

	staticSize: 0x678, staticRegions: u32(0x158), staticBase: u64(0x160).every(0x30), staticLimit: u64(0x168).every(0x30),
	staticReserved: u64(0x170).every(0x30), staticCompressed: u8(0x17c).every(0x30), staticISO: u8(0x17d).every(0x30),
	staticBAR1: u64(0x600), staticBAR2: u64(0x608), staticClient: u32(0x640), staticDevice: u32(0x644),
	staticSubdevice: u32(0x648), staticHeap: u64(0x668), staticFRTS: u64(0x670),

	unloadSize: 0x08, unloadSuspend: u8(0x00), unloadLevel: u32(0x04),
	barSize: 0x18, barWindow: u32(0x00), barEntry: u64(0x08),
	registrySize: 0x08, registryBytes: u32(0x00),
	spaceSize: 0x30, spaceFlags: u32(0x04),

	channelSize: 0x170, channelRing: u64(0x08), channelEntries: u32(0x10), channelFlags: u32(0x14), channelSpace: u32(0x1c),
	channelEngine: u32(0x80), channelInstance: u64(0x90), channelInstanceIn: u32(0xa0), channelUSERD: u64(0xa8),
	channelUSERDIn: u32(0xb8), channelInternal: u32(0xf4),

	directorySize: 0x20, directoryRoot: u64(0x00), directoryFlags: u32(0x0c), directorySpace: u32(0x10),
	unsetSize: 0x08, unsetSpace: u32(0x00),
	copySize: 0xb8, copyLevels: u32(0x20), copyAddress: u64(0x28), copyAperture: u32(0x38), // of the first level

	gpcsSize: 0x04, gpcsMask: u32(0x00),
	tpcsSize: 0x08, tpcsGPC: u32(0x00), tpcsMask: u32(0x04),
	vectorsSize: 0x804, vectorsCount: u32(0x00), vectorsEngine: u16(0x04).every(0x10), vectorsStall: u32(0x0c).every(0x10),
	vectorsNonStall: u32(0x10).every(0x10),
	enginesSize:     0xc8c, enginesCount: u32(0x04), enginesDesc: u32(0x0c).every(0x64), enginesType: u32(0x14).every(0x64),
	enginesRunlist: u32(0x18).every(0x64), enginesBase: u32(0x38).every(0x64),
	contextsSize: 0x680, contextsBytes: u32(0x00).every(0x08), contextsAlign: u32(0x04).every(0x08),
	zcullSize: 0x28, zcullWord: u32(0x00).every(0x04),
	promoteSize: 0x230,
	methodsSize: 0x04, methodsBytes: u32(0x00),
	falconsSize: 0x504, memsysSize: 0x28, compbitsSize: 0x50,
	bindSize: 0x04, bindEngine: u32(0x00),
	scheduleSize: 0x02, scheduleOn: u8(0x00),
	stopSize: 0x01, stopOn: u8(0x00),
	saveSize: 0x18,

	rcSize: 0x30, rcEngine: u32(0x00), rcChannel: u32(0x04), rcType: u32(0x10), rcAddress: u64(0x1c), rcFault: u32(0x24),
	logSize: 0x110, logType: u32(0x00), logRunlist: u32(0x04), logChannel: u32(0x08), logText: u8(0x0c).every(0x01),
}
