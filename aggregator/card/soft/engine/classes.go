package engine

import "slices"

// Kind is one of the two kinds of engine.
type Kind uint8

const (
	KindGR Kind = iota
	KindCE
)

// Class is one object class that the card's engines implement.
type Class struct {
	ID      uint16
	Kind    Kind
	Name    string // NVIDIA's
	Methods []Method
}

// Places of the graphics classes in GR.Values.
const (
	index9039 = iota
	index902d
	index9097
	index90c0
	grClassCount
)

// classRows lists the classes; a row's place is its place in Stats. Both copy
// classes have the methods of nouveau's microcode, which is the same on both
// engines (drivers/gpu/drm/nouveau/nvkm/engine/ce/fuc/com.fuc).
var classRows = [statSlots]Class{
	{ID: 0x9039, Kind: KindGR, Name: "FERMI_MEMORY_TO_MEMORY_FORMAT_A", Methods: class9039.rows},
	{ID: 0x902d, Kind: KindGR, Name: "FERMI_TWOD_A", Methods: class902d.rows},
	{ID: 0x9097, Kind: KindGR, Name: "FERMI_A", Methods: class9097.rows},
	{ID: 0x90c0, Kind: KindGR, Name: "FERMI_COMPUTE_A", Methods: class90c0.rows},
	{ID: 0x90b5, Kind: KindCE, Name: "GF100_DMA_COPY", Methods: class90b5.rows},
	{ID: 0x90b8, Kind: KindCE, Name: "GF100_DMA_DECOMPRESS", Methods: class90b5.rows},
}

// Places of the copy classes in Stats.
const (
	stat90b5 = 4
	stat90b8 = 5
)

var (
	class9039 = newClass(0x9039, index9039, 0, methods9039, slices.Concat(effectsAll, effects9039))
	class902d = newClass(0x902d, index902d, 1, methods902d, slices.Concat(effectsAll, effects902d))
	class9097 = newClass(0x9097, index9097, 2, slices.Concat(methods9097, extra9097), slices.Concat(effectsAll, effectsShader, effects9097))
	class90c0 = newClass(0x90c0, index90c0, 3, slices.Concat(methods90c0, extra90c0), slices.Concat(effectsAll, effectsShader, effects90c0))

	grClasses = [grClassCount]*class{class9039, class902d, class9097, class90c0}
)

// Classes lists the classes of the card's engines. The caller must not change
// the rows.
func Classes() []Class { return classRows[:] }

// grClass finds a graphics class.
func grClass(id uint16) *class {
	for _, c := range grClasses {
		if c.ID == id {
			return c
		}
	}
	return nil
}

// effectsAll are the effects of every graphics class.
var effectsAll = []effectRow{
	{name: "LOAD_MME_INSTRUCTION_RAM", access: Acts, act: loadMMECode},
	{name: "LOAD_MME_START_ADDRESS_RAM", access: Acts, act: loadMMEStart},
	{name: "CALL_MME_MACRO", access: Trigger, act: callMacro},
	{name: "CALL_MME_DATA", access: Acts, act: macroData},
	{name: "SET_MME_SHADOW_RAM_CONTROL", access: NotRun, act: shadowControl},
	{name: "NOTIFY", access: NotRun, act: notRun},
	{name: "SET_RENDER_ENABLE_C", access: Acts, act: setRenderEnable, valid: validRenderEnable},
	{name: "SET_RENDER_ENABLE_OVERRIDE", access: Stored, valid: validOverride},
}

// effectsShader is what 3D and compute share.
var effectsShader = []effectRow{
	{name: "LOAD_CONSTANT_BUFFER", access: Acts, act: loadConstant, bulk: loadConstants},
}

var effects9039 = []effectRow{
	{name: "SET_SRC_BLOCK_SIZE", access: Stored, valid: validBlockSize},
	{name: "SET_DST_BLOCK_SIZE", access: Stored, valid: validBlockSize},
	{name: "LAUNCH_DMA", access: Trigger, act: launchDMA, valid: validLaunch},
	{name: "LOAD_INLINE_DATA", access: Acts, act: loadInline, bulk: loadInlines},
}

var effects902d = []effectRow{
	{name: "RENDER_SOLID_PRIM_POINT_X_Y", access: NotRun, act: notRun},
	{name: "RENDER_SOLID_PRIM_POINT_Y", access: NotRun, act: notRun},
	{name: "PIXELS_FROM_CPU_DATA", access: NotRun, act: notRun},
	{name: "PIXELS_FROM_MEMORY_SRC_Y0_INT", access: NotRun, act: blit},
	{name: "MME_DMA_READ", access: NotRun, act: notRun},
	{name: "MME_DMA_READ_FIFOED", access: NotRun, act: notRun},
	{name: "MME_DMA_WRITE", access: NotRun, act: notRun},
	{name: "MME_DMA_REDUCTION", access: NotRun, act: notRun},
}

var effects9097 = []effectRow{
	{name: "SET_REPORT_SEMAPHORE_D", access: Acts, act: reportSemaphore},
	{name: "DRAW_ZERO_INDEX", access: NotRun, act: notRun},
	{name: "DRAW_VERTEX_ARRAY", access: NotRun, act: notRun},
	{name: "DRAW_VERTEX_ARRAY_BEGIN_END_INSTANCE_FIRST", access: NotRun, act: notRun},
	{name: "DRAW_VERTEX_ARRAY_BEGIN_END_INSTANCE_SUBSEQUENT", access: NotRun, act: notRun},
	{name: "DRAW_AUTO", access: NotRun, act: notRun},
	{name: "DRAW_INLINE_INDEX4X8", access: NotRun, act: notRun},
	{name: "DRAW_INLINE_INDEX", access: NotRun, act: notRun},
	{name: "DRAW_INLINE_INDEX2X16", access: NotRun, act: notRun},
	{name: "DRAW_INLINE_VERTEX", access: NotRun, act: notRun},
	{name: "LAUNCH_VERTEX", access: NotRun, act: notRun},
	{name: "DRAW_INDEX_BUFFER", access: NotRun, act: notRun},
	{name: "DRAW_INDEX_BUFFER32_BEGIN_END_INSTANCE_FIRST", access: NotRun, act: notRun},
	{name: "DRAW_INDEX_BUFFER16_BEGIN_END_INSTANCE_FIRST", access: NotRun, act: notRun},
	{name: "DRAW_INDEX_BUFFER8_BEGIN_END_INSTANCE_FIRST", access: NotRun, act: notRun},
	{name: "DRAW_INDEX_BUFFER32_BEGIN_END_INSTANCE_SUBSEQUENT", access: NotRun, act: notRun},
	{name: "DRAW_INDEX_BUFFER16_BEGIN_END_INSTANCE_SUBSEQUENT", access: NotRun, act: notRun},
	{name: "DRAW_INDEX_BUFFER8_BEGIN_END_INSTANCE_SUBSEQUENT", access: NotRun, act: notRun},
	{name: "CLEAR_SURFACE", access: NotRun, act: clearSurface},
	{name: "CLEAR_CLIP_ID_SURFACE", access: NotRun, act: notRun},
	{name: "CLEAR_ZCULL_REGION", access: NotRun, act: notRun},
}

var effects90c0 = []effectRow{
	{name: "SET_REPORT_SEMAPHORE_D", access: Acts, act: reportSemaphore, valid: validRelease},
	{name: "LAUNCH", access: Trigger, act: launch},
	{name: "BIND_CONSTANT_BUFFER", access: Acts, act: bindConstants},
	{name: "BIND_TEXTURE_HEADER", access: Acts, act: bindHeader},
	{name: "BIND_TEXTURE_SAMPLER", access: Acts, act: bindSampler},
	{name: "UNBIND_ALL", access: Acts, act: unbindAll},
	{name: "LOAD_GA_TO_VA_MAPPING_ENTRY", access: Acts, act: mapGlobal},
}

// notRun counts a trigger that nothing carries out.
func notRun(_ *GR, env *Env, c call) Outcome {
	env.Stats.notExecuted[c.row.trigger].Add(1)
	return Done
}
