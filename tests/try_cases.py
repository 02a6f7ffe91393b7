import time
import traceback
import warnings

warnings.simplefilter("error"); warnings.filterwarnings("ignore", "'future.no_silent")
import numpy as np
from cases import CASES

import windtunnel
from windtunnel.head import METHODS

for c in CASES.values():
    t=time.time()
    try:
        p=c.fitted()
    except Exception as e:
        print("FIT ", c.id, repr(e)[:300]); traceback.print_exc(limit=-1); continue
    t1=time.time()-t
    rows=c.rows()
    try:
        net=windtunnel.compile(p)
    except Exception as e:
        print("COMP", c.id, repr(e)[:400]); traceback.print_exc(limit=-2); continue
    if net.hosts: print("HOST", c.id, [ (h.name,h.reason) for h in net.hosts])
    for m in METHODS:
        if hasattr(p,m)!=hasattr(net,m): print("METH", c.id, m); continue
        if not hasattr(p,m): continue
        try: w=getattr(p,m)(rows)
        except Exception as e: print("SRC ", c.id, m, repr(e)[:300]); continue
        try: g=getattr(net,m)(rows)
        except Exception as e: print("NET ", c.id, m, repr(e)[:300]); traceback.print_exc(limit=-2); continue
        w=np.asarray(w.toarray() if hasattr(w,"toarray") else w)
        if m=="predict" and net.head.classes is not None:
            if w.dtype!=g.dtype or not (w==g).all(): print("LABL", c.id, w.dtype,g.dtype,(w!=g).sum())
        else:
            try: np.testing.assert_allclose(g, w.astype(float), rtol=c.tolerance, atol=c.tolerance)
            except Exception as e: print("DIFF", c.id, m, str(e)[:500])
    t2=time.time()-t-t1
    if t2>.3 or t1>.3: print("time", c.id, round(t1,2), round(t2,2))
