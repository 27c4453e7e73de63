# Completion of umbra's commands for bash. Generated; make reference writes it.
_umbra() {
	local at=umbra word words
	for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
		case "$at $word" in
		"umbra serve" | "umbra status" | "umbra top" | "umbra gpu" | "umbra gpu list" | "umbra gpu show" | "umbra gpu attach" | "umbra gpu add" | "umbra gpu set" | "umbra gpu inject" | "umbra gpu remove" | "umbra regs" | "umbra rom" | "umbra rom build" | "umbra rom show" | "umbra disasm" | "umbra card" | "umbra card probe" | "umbra vfio-user" | "umbra vfio-user probe" | "umbra vfio-user check" | "umbra bench" | "umbra bench run" | "umbra bench show" | "umbra sched" | "umbra sched show" | "umbra sched set" | "umbra sched simulate" | "umbra trace" | "umbra trace record" | "umbra trace show" | "umbra trace stats" | "umbra trace diff" | "umbra trace export" | "umbra trace replay" | "umbra trace coverage" | "umbra lab" | "umbra lab run" | "umbra config" | "umbra config save" | "umbra reload" | "umbra version") at="$at $word" ;;
		esac
	done
	case $at in
	"umbra") words="--help serve status top gpu regs rom disasm card vfio-user bench sched trace lab config reload version --version" ;;
	"umbra serve") words="--help --socket --socket-mode --socket-user --socket-group --control --control-mode --control-user --control-group --metrics --kind --vram --engines --slice --compiler --llvm --index --user --any-driver --chip --model --rom --msi --temperature --tpcs --bar1 --bar3 --bar-map --pci-device --pci-subsystem --transport --write-multi --max-dma-regions --max-dma-mappings --max-dma-memory --max-dma-alloc --sandbox --sandbox-folders --inject --dma-any-file --log-format --log-level --shadow-sync --shadow-scan --guests --card-timeout --error-rate --table-rate --map-aliases --map-runs --request --queued --creations --sched-policy --sched-depth --sched-slice --sched-credit-period --sched-band-window --sched-band-grace --sched-timeslice-slice --sched-dfq-slice --sched-dfq-factor --sched-dfq-free-run --sched-dfq-model --sched-watchdog-grace --sched-watchdog-offences --gpu --config --fd --check --json" ;;
	"umbra status") words="--help --control --json" ;;
	"umbra top") words="--help --control --json --csv --interval --looks --sort" ;;
	"umbra gpu") words="--help list show attach add set inject remove" ;;
	"umbra gpu list") words="--help --control --json" ;;
	"umbra gpu show") words="--help --control --json $(umbra gpu list 2>/dev/null | awk 'NR > 1 { print $1 }')" ;;
	"umbra gpu attach") words="--help --control --json --format $(umbra gpu list 2>/dev/null | awk 'NR > 1 { print $1 }')" ;;
	"umbra gpu add") words="--help --control --json" ;;
	"umbra gpu set") words="--help --control --json $(umbra gpu list 2>/dev/null | awk 'NR > 1 { print $1 }')" ;;
	"umbra gpu inject") words="--help --control --json --for --count --delay $(umbra gpu list 2>/dev/null | awk 'NR > 1 { print $1 }')" ;;
	"umbra gpu remove") words="--help --control --json --force $(umbra gpu list 2>/dev/null | awk 'NR > 1 { print $1 }')" ;;
	"umbra regs") words="--help --control --gpu --chip --at --touched --json" ;;
	"umbra rom") words="--help build show" ;;
	"umbra rom build") words="--help --output --device --size --memory --without" ;;
	"umbra rom show") words="--help --json" ;;
	"umbra disasm") words="--help --ir --asm --block --llvm" ;;
	"umbra card") words="--help probe" ;;
	"umbra card probe") words="--help --user --json" ;;
	"umbra vfio-user") words="--help probe check" ;;
	"umbra vfio-user probe") words="--help --timeout --json" ;;
	"umbra vfio-user check") words="--help --family --list --verbose --timeout --json" ;;
	"umbra bench") words="--help run show" ;;
	"umbra bench run") words="--help --in-process --machines --quick --only --setups --repeat --kernels --llvm --list --out" ;;
	"umbra bench show") words="--help --base" ;;
	"umbra sched") words="--help show set simulate" ;;
	"umbra sched show") words="--help --control --json" ;;
	"umbra sched set") words="--help --control --json" ;;
	"umbra sched simulate") words="--help --preset --mix --guest --policy --set --duration --seed --json --list" ;;
	"umbra trace") words="--help record show stats diff export replay coverage" ;;
	"umbra trace record") words="--help --control --all --for --pushbuffers" ;;
	"umbra trace show") words="--help --gpu --mmiotrace" ;;
	"umbra trace stats") words="--help --gpu" ;;
	"umbra trace diff") words="--help --gpu-a --gpu-b" ;;
	"umbra trace export") words="--help --gpu --perfetto" ;;
	"umbra trace replay") words="--help --gpu --chip" ;;
	"umbra trace coverage") words="--help --gpu --missing" ;;
	"umbra lab") words="--help run" ;;
	"umbra lab run") words="--help --kernel --modules --mesa --chip --memory --dir --verbose" ;;
	"umbra config") words="--help save" ;;
	"umbra config save") words="--help --control --json" ;;
	"umbra reload") words="--help --control --json" ;;
	"umbra version") words="--help" ;;
	esac
	COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _umbra umbra
