package engine

import "embed"

// Kind is the kind of context that executes a class.
type Kind uint8

const (
	KindGR             Kind = iota // GR
	KindCE                         // CE
	KindHopperGraphics             // HopperGraphics
	KindHopperCopy                 // HopperCopy
)

// tables are the methods of each class, for package methods. Each file names its source.
//
//go:embed classes
var tables embed.FS

// Places of the classes in Stats; those of graphics classes are also their places in GR.
const (
	place9039 = iota
	place902d
	place9097
	place90c0
	place90b5
	place90b8
	placeCB97
	placeCBC0
	placeA140
	placeC8B5
	classCount

	grClassCount = place90b5
)

// classes are those that the engines implement. Both copy classes have the methods of nouveau's
// microcode, which is the same on both engines. The last four are a GH100's.
var classes = [classCount]*Class{
	place9039: newClass(place9039, 0x9039, KindGR, "FERMI_MEMORY_TO_MEMORY_FORMAT_A", []string{"9039"}, effectsAll, effects9039),
	place902d: newClass(place902d, 0x902d, KindGR, "FERMI_TWOD_A", []string{"902d"}, effectsAll, effects902d),
	place9097: newClass(place9097, 0x9097, KindGR, "FERMI_A", []string{"9097", "9097-rnndb"}, effectsAll, effectsShader, effects9097),
	place90c0: newClass(place90c0, 0x90c0, KindGR, "FERMI_COMPUTE_A", []string{"90c0", "90c0-rnndb"}, effectsAll, effectsShader, effects90c0),
	place90b5: newClass(place90b5, 0x90b5, KindCE, "GF100_DMA_COPY", []string{"90b5"}),
	place90b8: newClass(place90b8, 0x90b8, KindCE, "GF100_DMA_DECOMPRESS", []string{"90b5"}),
	placeCB97: newClass(placeCB97, 0xcb97, KindHopperGraphics, "HOPPER_A", []string{"cb97"}, hopperInline, hopperReports, cannot(cannotCB97), hopperMacros, passed("LOAD_CONSTANT_BUFFER")),
	placeCBC0: newClass(placeCBC0, 0xcbc0, KindHopperGraphics, "HOPPER_COMPUTE_A", []string{"cbc0"}, hopperInline, hopperReports, cannot(cannotCBC0), hopperMacros),
	placeA140: newClass(placeA140, 0xa140, KindHopperGraphics, "KEPLER_INLINE_TO_MEMORY_B", []string{"a140"}, hopperInline, cannot("NOTIFY")),
	placeC8B5: newClass(placeC8B5, 0xc8b5, KindHopperCopy, "HOPPER_DMA_COPY_A", []string{"c8b5"}, effectsC8B5),
}

// newClass makes a class of tables of methods and their effects.
func newClass(place int, id uint16, kind Kind, name string, tables []string, effects ...map[string]effect) *Class {
	c := &Class{ID: id, Kind: kind, Name: name, place: place}
	for _, table := range tables {
		c.add(table)
	}
	for _, e := range effects {
		c.bind(e)
	}
	return c
}

// Classes lists the classes of the card's engines.
func Classes() []*Class { return classes[:] }

// ClassOf finds a class, nil if there is none.
func ClassOf(id uint16) *Class {
	for _, c := range &classes {
		if c.ID == id {
			return c
		}
	}
	return nil
}

// grClass finds a graphics class.
func grClass(id uint16) *Class {
	if c := ClassOf(id); c != nil && c.Kind == KindGR {
		return c
	}
	return nil
}

// effectsAll are the effects of every graphics class.
var effectsAll = map[string]effect{
	"LOAD_MME_INSTRUCTION_RAM":   {act: loadMMECode},
	"LOAD_MME_START_ADDRESS_RAM": {act: loadMMEStart},
	"CALL_MME_MACRO":             {act: callMacro},
	"CALL_MME_DATA":              {act: macroData},
	"SET_MME_SHADOW_RAM_CONTROL": {act: shadowControl, counts: true},
	"NOTIFY":                     unexecuted,
	"SET_RENDER_ENABLE_C":        {act: setRenderEnable, valid: validRenderEnable},
	"SET_RENDER_ENABLE_OVERRIDE": {valid: validOverride},
}

// effectsShader is what 3D and compute share.
var effectsShader = map[string]effect{
	"LOAD_CONSTANT_BUFFER": {bulk: loadConstants},
}

var effects9039 = map[string]effect{
	"SET_SRC_BLOCK_SIZE": {valid: validBlockSize},
	"SET_DST_BLOCK_SIZE": {valid: validBlockSize},
	"LAUNCH_DMA":         {act: launchDMA, valid: validLaunch},
	"LOAD_INLINE_DATA":   {bulk: loadInlines},
}

var effects902d = map[string]effect{
	"RENDER_SOLID_PRIM_POINT_X_Y":   unexecuted,
	"RENDER_SOLID_PRIM_POINT_Y":     unexecuted,
	"PIXELS_FROM_CPU_DATA":          unexecuted,
	"PIXELS_FROM_MEMORY_SRC_Y0_INT": {act: blit, counts: true},
	"MME_DMA_READ":                  unexecuted,
	"MME_DMA_READ_FIFOED":           unexecuted,
	"MME_DMA_WRITE":                 unexecuted,
	"MME_DMA_REDUCTION":             unexecuted,
}

var effects9097 = map[string]effect{
	"SET_REPORT_SEMAPHORE_D":                          {act: reportSemaphore},
	"DRAW_ZERO_INDEX":                                 unexecuted,
	"DRAW_VERTEX_ARRAY":                               unexecuted,
	"DRAW_VERTEX_ARRAY_BEGIN_END_INSTANCE_FIRST":      unexecuted,
	"DRAW_VERTEX_ARRAY_BEGIN_END_INSTANCE_SUBSEQUENT": unexecuted,
	"DRAW_AUTO":             unexecuted,
	"DRAW_INLINE_INDEX4X8":  unexecuted,
	"DRAW_INLINE_INDEX":     unexecuted,
	"DRAW_INLINE_INDEX2X16": unexecuted,
	"DRAW_INLINE_VERTEX":    unexecuted,
	"LAUNCH_VERTEX":         unexecuted,
	"DRAW_INDEX_BUFFER":     unexecuted,
	"DRAW_INDEX_BUFFER32_BEGIN_END_INSTANCE_FIRST":      unexecuted,
	"DRAW_INDEX_BUFFER16_BEGIN_END_INSTANCE_FIRST":      unexecuted,
	"DRAW_INDEX_BUFFER8_BEGIN_END_INSTANCE_FIRST":       unexecuted,
	"DRAW_INDEX_BUFFER32_BEGIN_END_INSTANCE_SUBSEQUENT": unexecuted,
	"DRAW_INDEX_BUFFER16_BEGIN_END_INSTANCE_SUBSEQUENT": unexecuted,
	"DRAW_INDEX_BUFFER8_BEGIN_END_INSTANCE_SUBSEQUENT":  unexecuted,
	"CLEAR_SURFACE":         {act: clearSurface, counts: true},
	"CLEAR_CLIP_ID_SURFACE": unexecuted,
	"CLEAR_ZCULL_REGION":    unexecuted,
}

var effects90c0 = map[string]effect{
	"SET_REPORT_SEMAPHORE_D":      {act: reportSemaphore, valid: validRelease},
	"LAUNCH":                      {act: launch},
	"BIND_CONSTANT_BUFFER":        {act: bindConstants},
	"BIND_TEXTURE_HEADER":         {act: bindHeader},
	"BIND_TEXTURE_SAMPLER":        {act: bindSampler},
	"UNBIND_ALL":                  {act: unbindAll},
	"LOAD_GA_TO_VA_MAPPING_ENTRY": {act: mapGlobal},
}

// unexecuted is a trigger that nothing carries out.
var unexecuted = effect{act: notRun, counts: true}

// notRun counts a trigger that nothing carries out.
func notRun(_ *GR, env *Env, c call) Outcome {
	env.Stats.notExecuted[c.row.trigger].Add(1)
	return Done
}
