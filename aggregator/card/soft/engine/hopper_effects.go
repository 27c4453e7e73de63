package engine

import "strings"

// cannot are the effects of methods that would draw, launch, or change memory in a way that the
// card does not know.
func cannot(names string) map[string]effect {
	return named(names, effect{hopper: refuseHopper, counts: true})
}

// passed are the effects of methods that change only what draws and launches see.
func passed(names string) map[string]effect {
	return named(names, effect{hopper: passHopper, counts: true})
}

// hopperMacros are the effects of calls of macros.
var hopperMacros = map[string]effect{"CALL_MME_MACRO": {hopper: macroHopper, counts: true}}

func named(names string, e effect) map[string]effect {
	effects := map[string]effect{}
	for name := range strings.FieldsSeq(names) {
		effects[name] = e
	}
	return effects
}

// hopperInline are the effects of the classes that take inline data.
var hopperInline = map[string]effect{
	"SET_DST_BLOCK_SIZE": {valid: validBlockSize},
	"LAUNCH_DMA":         {hopper: beginInline, valid: validI2M},
	"LOAD_INLINE_DATA":   {hopper: inlineWord},
}

var hopperReports = map[string]effect{"SET_REPORT_SEMAPHORE_D": {hopper: hopperReport, counts: true}}

// Methods of the classes that are not carried out.
const (
	cannotCB97 = "DRAW_INDEX_BUFFER_BEGIN_END_B DRAW_VERTEX_ARRAY_BEGIN_END_B DRAW_ZERO_INDEX DRAW_VERTEX_ARRAY " +
		"DRAW_VERTEX_ARRAY_BEGIN_END_INSTANCE_FIRST DRAW_VERTEX_ARRAY_BEGIN_END_INSTANCE_SUBSEQUENT DRAW_AUTO DRAW_INLINE_INDEX4X8 " +
		"DRAW_INLINE_INDEX DRAW_INLINE_INDEX2X16 DRAW_INDEX_BUFFER DRAW_INDEX_BUFFER32_BEGIN_END_INSTANCE_FIRST " +
		"DRAW_INDEX_BUFFER16_BEGIN_END_INSTANCE_FIRST DRAW_INDEX_BUFFER8_BEGIN_END_INSTANCE_FIRST " +
		"DRAW_INDEX_BUFFER32_BEGIN_END_INSTANCE_SUBSEQUENT DRAW_INDEX_BUFFER16_BEGIN_END_INSTANCE_SUBSEQUENT " +
		"DRAW_INDEX_BUFFER8_BEGIN_END_INSTANCE_SUBSEQUENT CLEAR_SURFACE CLEAR_CLIP_ID_SURFACE CLEAR_ZCULL_REGION REPORT_SEMAPHORE_EXECUTE " +
		"MME_DMA_WRITE MME_DMA_REDUCTION NOTIFY"
	cannotCBC0 = "SEND_PCAS_B SEND_SIGNALING_PCAS_B SEND_SIGNALING_PCAS2_B REPORT_SEMAPHORE_EXECUTE MME_DMA_WRITE MME_DMA_REDUCTION NOTIFY"
	cannot902d = "RENDER_SOLID_PRIM_POINT_Y PIXELS_FROM_CPU_DATA PIXELS_FROM_MEMORY_SRC_Y0_INT MME_DMA_WRITE MME_DMA_REDUCTION NOTIFY"
)
