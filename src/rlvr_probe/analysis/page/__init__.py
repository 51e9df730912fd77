"""Rows that the page draws beside the sections: every GPU, step and moment, and who they are.

Of a large run some are drawn one by one and all are counted; what is drawn is chosen here, and
:mod:`rlvr_probe.report.page` puts it into the form that its scripts read.
"""
