package compile

// blocksText is Blocks, see withFields for how it is written.
const blocksText = `
define void @blocks(ptr %c) #0 {
  %work = load ptr at %c $Loop.Work
  %head = load ptr at %c $Loop.Block
  %all = getelementptr i8, ptr %head, i64 $HeaderSize
  %code = load ptr at %c $Loop.Code
  %sites = load ptr at %c $Loop.Sites
  %n = load i32 at %head $Block.Warps
  br label %turn

turn:
  %stopAt = getelementptr i8, ptr %work, i64 $Work.Stop
  %stop = load atomic i32, ptr %stopAt monotonic, align 4
  %stopped = icmp ne i32 %stop, 0
  br i1 %stopped, label %isStopped, label %limits
limits:
  %cost = load i64 at %c $Loop.Cost
  %limit = load i64 at %c $Loop.Limit
  %turns = load i64 at %c $Loop.Turns
  %numTurns = load i64 at %c $Loop.NumTurns
  %maxTurns = load i64 at %c $Loop.MaxTurns
  %gone = icmp uge i64 %cost, %limit
  %listed = icmp ne i64 %turns, 0
  %full = icmp uge i64 %numTurns, %maxTurns
  %overfull = and i1 %listed, %full
  %over = or i1 %gone, %overfull
  br i1 %over, label %isBudget, label %look
look:
  %begun = load i32 at %head $Block.Begun
  %none = icmp eq i32 %begun, 0
  br i1 %none, label %take, label %pick

pick:
  %last = load i32 at %head $Block.Turn
  br label %try
try:
  %i = phi i32 [ 0, %pick ], [ %i1, %again ]
  %j = phi i32 [ %last, %pick ], [ %jn, %again ]
  %alive = phi i1 [ false, %pick ], [ %alive1, %again ]
  %tried = icmp uge i32 %i, %n
  br i1 %tried, label %nobody, label %one
one:
  %j1 = add i32 %j, 1
  %wraps = icmp uge i32 %j1, %n
  %jn = select i1 %wraps, i32 0, i32 %j1
  %jn64 = zext i32 %jn to i64
  %off = mul i64 %jn64, $WarpSize
  %w = getelementptr i8, ptr %all, i64 %off
  %wait = load i32 at %w $Warp.Wait
  %exited = load i32 at %w $Warp.Exited
  %runs = icmp eq i32 %wait, -1
  %lives = icmp ne i32 %exited, -1
  %ok = and i1 %runs, %lives
  br i1 %ok, label %go, label %again
again:
  %i1 = add i32 %i, 1
  %alive1 = or i1 %alive, %lives
  br label %try
nobody:
  br i1 %alive, label %isDeadlock, label %finished
finished:
  store i32 0 at %head $Block.Begun
  br label %take

go:
  store i32 %jn at %head $Block.Turn
  %start = load i32 at %w $Warp.Start
  store i32 %start at %w $Warp.Site
  store i32 -1 at %w $Warp.Start
  store i32 %jn at %c $Context.Warp
  %idAt = getelementptr i8, ptr %head, i64 $Block.ID
  %ctxID = getelementptr i8, ptr %c, i64 $Context.Block
  %id = load <3 x i32>, ptr %idAt, align 4
  store <3 x i32> %id, ptr %ctxID, align 4
  %remains = sub i64 %limit, %cost
  %slice = load i64 at %c $Loop.Slice
  %short = icmp ult i64 %remains, %slice
  %budget = select i1 %short, i64 %remains, i64 %slice
  store i64 %budget at %c $Context.Budget
  store i64 0 at %c $Context.Spent
  call void %code(ptr %c, ptr %w)
  %site = load i32 at %w $Warp.Site
  %badSite = icmp eq i32 %site, -1
  br i1 %badSite, label %isLeft, label %ran
ran:
  %spent = load i64 at %c $Context.Spent
  %left = load i64 at %c $Context.Budget
  %extra = sub i64 %budget, %left
  %site64 = zext i32 %site to i64
  %rowOff = mul i64 %site64, $SiteSize
  %row = getelementptr i8, ptr %sites, i64 %rowOff
  %why = load i32, ptr %row
  %nextAt = getelementptr i8, ptr %row, i64 4
  %next = load i32, ptr %nextAt
  %barAt = getelementptr i8, ptr %row, i64 8
  %bar = load i32, ptr %barAt
  %pcAt = getelementptr i8, ptr %row, i64 12
  %pc = load i32, ptr %pcAt
  %afterAt = getelementptr i8, ptr %row, i64 16
  %after = load i32, ptr %afterAt
  %isBar = icmp eq i32 %why, $AtBarrier
  %quiet = icmp ne i32 %bar, -1
  %native = and i1 %isBar, %quiet
  %one64 = zext i1 %native to i64
  %did = add i64 %spent, %one64
  %pcNow = select i1 %native, i32 %after, i32 %pc
  store i32 %pcNow at %w $Warp.PC
  %ranTotal = load i64 at %c $Loop.Ran
  %ranTotal1 = add i64 %ranTotal, %did
  store i64 %ranTotal1 at %c $Loop.Ran
  %clock = load i64 at %head $Block.Clock
  %clock1 = add i64 %clock, %did
  store i64 %clock1 at %head $Block.Clock
  %did1 = add i64 %did, %extra
  %cost1 = add i64 %cost, %did1
  %moves = icmp ne i64 %did1, 0
  %least = add i64 %cost, 1
  %cost2 = select i1 %moves, i64 %cost1, i64 %least
  store i64 %cost2 at %c $Loop.Cost
  br i1 %listed, label %list, label %listedNow
list:
  %turnOff = mul i64 %numTurns, 8
  %turnAddr = add i64 %turns, %turnOff
  %turnAt = inttoptr i64 %turnAddr to ptr
  store i32 %jn, ptr %turnAt
  %turnAt2 = getelementptr i8, ptr %turnAt, i64 4
  %did32 = trunc i64 %did to i32
  store i32 %did32, ptr %turnAt2
  %numTurns1 = add i64 %numTurns, 1
  store i64 %numTurns1 at %c $Loop.NumTurns
  br label %listedNow
listedNow:
  switch i32 %why, label %isLeft [
    i32 $Done, label %ended
    i32 $OutOfBudget, label %yields
    i32 $AtBarrier, label %barrier
  ]
yields:
  store i32 %next at %w $Warp.Start
  br label %turn
ended:
  %gone2 = load i32 at %w $Warp.Exited
  %really = icmp eq i32 %gone2, -1
  br i1 %really, label %ends, label %isLeft
ends:
  %running = load i32 at %head $Block.Running
  %running1 = sub i32 %running, 1
  store i32 %running1 at %head $Block.Running
  %busy = load i32 at %head $Block.Busy
  %idle = icmp eq i32 %busy, 0
  br i1 %idle, label %turn, label %settle

barrier:
  br i1 %quiet, label %arrive, label %isLeft
arrive:
  %by = load i32 at %w $Warp.Active
  store i32 %next at %w $Warp.Start
  store i32 %bar at %w $Warp.Wait
  store i32 %pc at %w $Warp.WaitPC
  store i32 %by at %w $Warp.WaitBy
  store i32 1 at %w $Warp.Quiet
  %bar64 = zext i32 %bar to i64
  %bOff = mul i64 %bar64, $BarrierSize
  %bars = getelementptr i8, ptr %head, i64 $Block.Barriers
  %b = getelementptr i8, ptr %bars, i64 %bOff
  %arrived = load i32 at %b $Barrier.Arrived
  %fresh = icmp eq i32 %arrived, 0
  %arrived1 = add i32 %arrived, 1
  store i32 %arrived1 at %b $Barrier.Arrived
  store i32 0 at %b $Barrier.Expected
  %true = load i32 at %b $Barrier.True
  %true0 = select i1 %fresh, i32 0, i32 %true
  %pop = call i32 @llvm.ctpop.i32(i32 %by)
  %true1 = add i32 %true0, %pop
  store i32 %true1 at %b $Barrier.True
  store i32 1 at %b $Barrier.Any
  %not = load i32 at %b $Barrier.Not
  %not0 = select i1 %fresh, i32 0, i32 %not
  store i32 %not0 at %b $Barrier.Not
  store i32 1 at %head $Block.Busy
  %runningNow = load i32 at %head $Block.Running
  %waits = icmp ult i32 %arrived1, %runningNow
  br i1 %waits, label %turn, label %complete
complete:
  %barAfter = add i32 %bar, 1
  br label %settle

settle:
  %fromBar = phi i32 [ 0, %ends ], [ %bar, %complete ]
  %toBar = phi i32 [ $Barriers, %ends ], [ %barAfter, %complete ]
  %quietly = call i1 @settle(ptr %head, ptr %all, i32 %n, i32 %fromBar, i32 %toBar)
  br i1 %quietly, label %turn, label %isSettle

take:
  %own = load i64 at %head $Block.Next
  %ownEnd = load i64 at %head $Block.End
  %has = icmp ult i64 %own, %ownEnd
  br i1 %has, label %new, label %takeMore
takeMore:
  %takeAt = getelementptr i8, ptr %work, i64 $Work.Next
  %countAt = getelementptr i8, ptr %work, i64 $Work.Count
  %count = load i64, ptr %countAt
  %peek = load atomic i64, ptr %takeAt monotonic, align 8
  %some = icmp ult i64 %peek, %count
  br i1 %some, label %try2, label %isExhausted
try2:
  %rest = sub i64 %count, %peek
  %part = lshr i64 %rest, 6
  %many0 = call i64 @llvm.umax.i64(i64 %part, i64 1)
  %many = call i64 @llvm.umin.i64(i64 %many0, i64 $MostTaken)
  %first = atomicrmw add ptr %takeAt, i64 %many monotonic
  %firstEnd0 = add i64 %first, %many
  %firstEnd = call i64 @llvm.umin.i64(i64 %firstEnd0, i64 %count)
  %mine = icmp ult i64 %first, %count
  br i1 %mine, label %taken, label %isExhausted
taken:
  store i64 %firstEnd at %head $Block.End
  br label %new
new:
  %k = phi i64 [ %own, %take ], [ %first, %taken ]
  %k1 = add i64 %k, 1
  store i64 %k1 at %head $Block.Next
  call void @begin(ptr %c, ptr %head, ptr %all, i32 %n, i64 %k)
  br label %turn

isExhausted:
  store i32 $Exhausted at %c $Loop.Why
  ret void
isBudget:
  store i32 $Budget at %c $Loop.Why
  ret void
isStopped:
  store i32 $Stopped at %c $Loop.Why
  ret void
isLeft:
  store i32 $Left at %c $Loop.Why
  ret void
isDeadlock:
  store i32 $Deadlock at %c $Loop.Why
  ret void
isSettle:
  store i32 $Settle at %c $Loop.Why
  ret void
}
`
