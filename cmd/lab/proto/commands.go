package proto

// Command describes a command for a person.
type Command struct {
	Name  string
	Args  any // their zero value; nil: none
	About string
}

// Commands are all that a guest has, in the order in which a person meets them.
var Commands = []Command{
	{CmdPing, nil, "answer"},
	{CmdModprobe, ModprobeArgs{}, "load a module and those that it needs; its name alone will do"},
	{CmdRmmod, ModprobeArgs{}, "unload a module; its name alone will do"},
	{CmdKmsg, KmsgArgs{}, "show the kernel's log"},
	{CmdMark, MarkArgs{}, "write a line into the kernel's log"},
	{CmdPCI, PCIArgs{}, "list PCI devices"},
	{CmdBind, BindArgs{}, "take the GPU from nouveau and give it back"},
	{CmdDRI, nil, "list /dev/dri"},
	{CmdInterrupts, InterruptsArgs{}, "count the GPU's interrupts"},
	{CmdRegisters, RegistersArgs{}, "access registers behind the driver's back"},
	{CmdRun, RunArgs{}, "run a program of the image, with its arguments, on the GPU by OpenCL or OpenGL; the words alone will do"},
	{CmdPoweroff, nil, "power off"},
	{CmdReboot, nil, "reboot; a guest of lab command ends instead"},
	{CmdSuspend, nil, "suspend to RAM; a guest of lab command does not wake up, one with lab.Config.Suspend does"},

	{CmdBOMoves, BOMovesArgs{}, "move a buffer between VRAM and the guest's memory, and verify it"},
	{CmdM2MF, CopyArgs{}, "copy with M2MF each way, and verify it"},
	{CmdCE, CopyArgs{}, "copy with both copy engines each way, and verify it"},
	{CmdExec, CopyArgs{}, "copy by VM_BIND, EXEC and timeline syncobjs, and verify it"},
	{CmdFences, FencesArgs{}, "make small submissions, wait for each, and chain copies across channels"},
	{CmdFault, OffenceArgs{}, "cause an MMU fault, or submit what is not valid, while others copy"},
	{CmdLoad, LoadArgs{}, "start to copy until load-stop"},
	{CmdLoadStop, nil, "end load"},

	{CmdDoorbellOpen, nil, "open the channel of doorbell"},
	{CmdDoorbell, DoorbellArgs{}, "submit on that channel, one at a time"},
	{CmdDoorbellClose, nil, "close that channel"},
}
