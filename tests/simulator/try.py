import time,sys
from pathlib import Path
from tests.simulator.setting import *
from tests.simulator.draws import *
from tests.simulator.controlled import Controlled
from tests.simulator.controlled_rows import ControlledRows
from tests.simulator.cast import Cast
import shutil
f=Path("/tmp/s5/sim/r1"); shutil.rmtree(f,ignore_errors=True)
s=Scenario(1,lengths=Lengths(turns=3),eval_every=10,checkpoint_every=10)
d=Draws(1,s.lengths,s.group_size)
for tell in (False,False,True):
    a=time.process_time()
    st=Setting(s,d,())
    c=Cast(f,st) if tell else None
    fate=Controlled(st,ControlledRows(c) if c else None).play()
    print(time.process_time()-a, fate.end/1e9, fate.trajectories, fate.slot_ns/fate.capacity_ns)
t=fate.books.totals(); print(sum(t.values())==fate.gpu_ns, {k:round(v/fate.gpu_ns,4) for k,v in t.items() if v}, c.rows)
from rlvr_probe.trace import read_run
tr=read_run(f); print(tr.lost,tr.notes,tr.unjoined_rpcs,tr.unreached,len(list(tr.steps())), all(x.complete for x in tr.steps() if x.started), tr.totals)
