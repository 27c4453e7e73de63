package nvrm

import "gvisor.dev/gvisor/pkg/abi/nvgpu"

// Structures that package nvgpu lacks, from src/common/sdk/nvidia/inc of NVIDIA's open-gpu-kernel-modules,
// release 580.

// Numbers of calls, besides those of nvgpu.
const escGetEventData = 0x52 // NV_ESC_RM_GET_EVENT_DATA

// Classes.
const (
	classRoot         = 0x41 // NV01_ROOT_CLIENT
	classDevice       = 0x80 // NV01_DEVICE_0
	classSubdevice    = 0x2080
	classUsermode     = 0xc661 // HOPPER_USERMODE_A
	classSpace        = 0x90f1 // FERMI_VASPACE_A
	classWhole        = 0x70   // NV01_MEMORY_VIRTUAL
	classRange        = 0x50a0 // NV50_MEMORY_VIRTUAL
	classVRAM         = 0x40   // NV01_MEMORY_LOCAL_USER
	classOSDescriptor = 0x71   // NV01_MEMORY_SYSTEM_OS_DESCRIPTOR
	classGroup        = 0xa06c // KEPLER_CHANNEL_GROUP_A
	classSubcontext   = 0x9067 // FERMI_CONTEXT_SHARE_A
	classChannel      = 0xc86f // HOPPER_CHANNEL_GPFIFO_A
	classEvent        = 0x79   // NV01_EVENT_OS_EVENT
)

// Controls.
const (
	ctrlID           = 0x205      // NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2
	ctrlInvalidate   = 0x80180c   // NV0080_CTRL_CMD_DMA_INVALIDATE_TLB
	ctrlSchedule     = 0xa06c0101 // NVA06C_CTRL_CMD_GPFIFO_SCHEDULE
	ctrlTimeslice    = 0xa06c0103 // NVA06C_CTRL_CMD_SET_TIMESLICE
	ctrlToken        = 0xc36f0108 // NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN
	ctrlDisable      = 0x2080110b // NV2080_CTRL_CMD_FIFO_DISABLE_CHANNELS
	ctrlReset        = 0x906f0102 // NV906F_CTRL_CMD_RESET_CHANNEL
	ctrlPreemption   = 0x20801210 // NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE
	ctrlFault        = 0x906f0106 // NV906F_CTRL_CMD_GET_MMU_FAULT_INFO
	ctrlNotification = 0x20800301 // NV2080_CTRL_CMD_EVENT_SET_NOTIFICATION
	ctrlFBInfo       = 0x20801303 // NV2080_CTRL_CMD_FB_GET_INFO_V2
	ctrlName         = 0x20800110 // NV2080_CTRL_CMD_GPU_GET_NAME_STRING
	ctrlArch         = nvgpu.NV2080_CTRL_CMD_MC_GET_ARCH_INFO
	ctrlEngines      = 0x20800170 // NV2080_CTRL_CMD_GPU_GET_ENGINES_V2
	ctrlCulling      = 0x20801206 // NV2080_CTRL_CMD_GR_GET_ZCULL_INFO
	ctrlContext      = 0x801707   // NV0080_CTRL_CMD_FIFO_GET_ENGINE_CONTEXT_PROPERTIES
)

// Notifiers of a subdevice, from class/cl2080_notification.h.
const (
	notifyGraphics = 12
	notifyCopy     = 23 // of copy engine 0
	notifyError    = 37 // NV2080_NOTIFIERS_RC_ERROR
	notifyRepeat   = 2
)

// engineCopy is NV2080_ENGINE_TYPE_COPY0, engineGraphics NV2080_ENGINE_TYPE_GRAPHICS.
const (
	engineGraphics = 1
	engineCopy     = 9
)

type timesliceParams struct{ Microseconds uint64 }

type scheduleParams struct{ Enable, SkipSubmit, SkipEnable uint8 }

type invalidateParams struct{ Space, Flags uint32 }

type tokenParams struct{ Token uint32 }

type resetParams struct {
	Engine, Subdevice, Reason uint32
	Pending                   uint8
	_                         [3]byte
}

// preemptionParams are NV2080_CTRL_GR_SET_CTXSW_PREEMPTION_MODE_PARAMS.
type preemptionParams struct {
	Flags, Channel, Graphics, Compute uint32
	Route                             [2]uint64 // to the engine; zero is the only one
}

type faultParams struct {
	High, Low, Type uint32
	Text            [32]byte
	_               [4]byte
	Programs        [7]uint64
}

type notificationParams struct {
	Event, Action uint32
	State         uint8
	_             [3]byte
	Info32        uint32
	Info16        uint16
	_             [2]byte
}

type infoItem struct{ Index, Value uint32 }

type fbInfoParams struct {
	N     uint32
	Items [128]infoItem
}

// Items of fbInfoParams, in KiB.
const (
	fbTotal = 8  // NV2080_CTRL_FB_INFO_INDEX_TOTAL_RAM_SIZE
	fbFree  = 22 // NV2080_CTRL_FB_INFO_INDEX_HEAP_FREE
)

type nameParams struct {
	Flags uint32
	Name  [128]byte // NV2080_GPU_MAX_NAME_STRING_LENGTH, two bytes each for Unicode
}

type archParams struct {
	Architecture, Implementation, Revision uint32
	SubRevision                            uint8
	_                                      [3]byte
}

// archHopper is NV2080_CTRL_MC_ARCH_INFO_ARCHITECTURE_GH100.
const archHopper = 0x180

type enginesParams struct {
	N    uint32
	List [84]uint32
}

type cullingParams struct{ Words [10]uint32 }

type contextParams struct{ ID, Align, Size uint32 }

// contextCulling is NV0080_CTRL_FIFO_GET_ENGINE_CONTEXT_PROPERTIES_ENGINE_ID_GRAPHICS_ZCULL.
const contextCulling = 8

// Event data: NVOS41_PARAMETERS with NvUnixEvent.
type eventParams struct {
	Data   uint64
	More   uint32
	Status uint32
}

type eventData struct {
	Object, Notifier, Info32 uint32
	Info16                   uint16
	_                        [2]byte
}

type idParams struct {
	GPU, Flags, Device, Subdevice, SLI, Board, Instance uint32
	NUMA                                                int32
}
