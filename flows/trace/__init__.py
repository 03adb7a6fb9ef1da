"""Showing traces: one as a table or an HTML page, and two compared operator by operator.

trace ---------> table: the largest operators, on a terminal
                 traces: a page of operators by time and in graph order, types, memory traffic
two traces ----> difference: groups of operators that hold the same nodes of the graph
"""
