-- After examples/orders/data.sql: the same rows with indexes.
create table quick_customers as select * from customers;
create table quick_orders as select * from orders;
create table quick_items as select * from items;
create index on quick_customers (email);
create index on quick_orders (customer_id);
create index on quick_items (order_id);
vacuum analyze;
checkpoint;
